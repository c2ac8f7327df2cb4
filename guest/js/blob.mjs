// Blob and File, as bytes in memory.

import { decode, encode, view } from "./bytes.mjs";

export class Blob {
  #bytes;

  constructor(parts = [], options = {}) {
    const pieces = [...parts].map((part) => {
      if (part instanceof Blob) return part.#bytes;
      return part instanceof ArrayBuffer || ArrayBuffer.isView(part) ? view(part) : encode(String(part));
    });
    this.#bytes = new Uint8Array(pieces.reduce((size, piece) => size + piece.length, 0));
    let at = 0;
    for (const piece of pieces) {
      this.#bytes.set(piece, at);
      at += piece.length;
    }
    this.type = String(options.type ?? "").toLowerCase();
  }
  get size() {
    return this.#bytes.length;
  }
  slice(start, end, type) {
    return new Blob([this.#bytes.slice(start, end)], { type });
  }
  async arrayBuffer() {
    return this.#bytes.slice().buffer;
  }
  async bytes() {
    return this.#bytes.slice();
  }
  async text() {
    return decode(this.#bytes);
  }
}

export class File extends Blob {
  constructor(parts, name, options = {}) {
    super(parts, options);
    this.name = String(name);
    this.lastModified = options.lastModified ?? Date.now();
  }
}
