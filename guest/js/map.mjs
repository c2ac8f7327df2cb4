// Places in a bundle back to those in its sources. Format: ECMA-426, "Source map format".

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/** A source map, read where it is asked. */
export class SourceMap {
  #sources = [];
  #lines = [];

  /** @param {string | null | undefined} text The map as JSON; without one no place is known. */
  constructor(text) {
    if (!text) return;
    const map = JSON.parse(text);
    this.#sources = map.sources;
    this.#lines = map.mappings.split(";");
    this.read = 0;
    this.state = [0, 0];
    this.known = [];
  }

  /** Return `file:line` of a place in the bundle, if the map has it. Lines from 1, columns from 0. */
  place(line, column) {
    if (line > this.#lines.length) return undefined;
    while (this.read < line) this.known.push(this.#decode(this.#lines[this.read++]));
    const segments = this.known[line - 1];
    const found = segments.findLast((one) => one.column <= column) ?? segments[0];
    return found && `${this.#sources[found.source]}, line ${found.line + 1}`;
  }

  #decode(text) {
    const segments = [];
    let column = 0;
    for (const part of text === "" ? [] : text.split(",")) {
      const [at, source, line] = numbers(part);
      column += at;
      if (source === undefined) continue;
      this.state = [this.state[0] + source, this.state[1] + line];
      segments.push({ column, source: this.state[0], line: this.state[1] });
    }
    return segments;
  }
}

/** Base64 VLQ: five bits a digit, the sixth says that more follow; the lowest bit of all is the sign. */
function numbers(text) {
  const found = [];
  let value = 0;
  let shift = 0;
  for (const character of text) {
    const digit = DIGITS.indexOf(character);
    value += (digit & 31) << shift;
    shift += 5;
    if ((digit & 32) === 0) {
      found.push(value & 1 ? -(value >> 1) : value >> 1);
      value = shift = 0;
    }
  }
  return found;
}
