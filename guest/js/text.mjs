// TextEncoder and TextDecoder, for UTF-8, UTF-16LE and Latin-1.

import { decode, encode, view } from "./bytes.mjs";

const LABELS = {
  "utf-8": "utf-8",
  utf8: "utf-8",
  "utf-16le": "utf-16le",
  "utf-16": "utf-16le",
  latin1: "windows-1252",
  ascii: "windows-1252",
  "us-ascii": "windows-1252",
  "iso-8859-1": "windows-1252",
  "windows-1252": "windows-1252",
};

export class TextEncoder {
  encoding = "utf-8";

  encode(text = "") {
    return encode(text);
  }
  encodeInto(text, target) {
    const whole = String(text).toWellFormed();
    let read = whole.length;
    let bytes = encode(whole);
    while (bytes.length > target.length) {
      // A character has at most three bytes for each of its UTF-16 units.
      read -= Math.max(1, Math.floor((bytes.length - target.length) / 3));
      if (/[\ud800-\udbff]/.test(whole[read - 1] ?? "")) read -= 1;
      bytes = encode(whole.slice(0, read));
    }
    target.set(bytes);
    return { read, written: bytes.length };
  }
}

export class TextDecoder {
  #held = new Uint8Array();

  constructor(label = "utf-8", options = {}) {
    this.encoding = LABELS[String(label).trim().toLowerCase()];
    if (this.encoding === undefined) throw new RangeError(`The encoding '${label}' isn't one of the sandbox's`);
    this.fatal = Boolean(options.fatal);
    this.ignoreBOM = Boolean(options.ignoreBOM);
  }
  decode(input = new Uint8Array(), options = {}) {
    let bytes = view(input);
    if (this.#held.length > 0) {
      const whole = new Uint8Array(this.#held.length + bytes.length);
      whole.set(this.#held);
      whole.set(bytes, this.#held.length);
      bytes = whole;
    }
    const keep = options.stream ? this.#unfinished(bytes) : 0;
    this.#held = bytes.slice(bytes.length - keep);
    const text = this.#text(bytes.subarray(0, bytes.length - keep));
    return this.ignoreBOM ? text : text.replace(/^\ufeff/, "");
  }
  #text(bytes) {
    if (this.encoding === "utf-8") return decode(bytes, this.fatal);
    if (this.encoding === "windows-1252") return atob(bytes.toBase64());
    let text = "";
    for (let at = 0; at + 1 < bytes.length; at += 2) text += String.fromCharCode(bytes[at] | (bytes[at + 1] << 8));
    return bytes.length % 2 === 1 ? `${text}\ufffd` : text;
  }
  /** How many bytes at the end may be the beginning of a character. */
  #unfinished(bytes) {
    if (this.encoding === "utf-16le") return bytes.length % 2;
    if (this.encoding !== "utf-8") return 0;
    for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
      const byte = bytes[bytes.length - back];
      if (byte >= 0xc0) return (byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2) > back ? back : 0;
      if (byte < 0x80) return 0;
    }
    return 0;
  }
}
