// What of `crypto` needs only random numbers; digests and ciphers are for packages.

import source from "wasi:random/random@0.2.0";
import { view } from "../bytes.mjs";
import { Buffer } from "unenv/node/buffer";

const MAX_BYTES = 65_536;

export function getRandomValues(array) {
  const bytes = view(array);
  if (bytes.length > MAX_BYTES) throw new DOMException(`At most ${MAX_BYTES} bytes`, "QuotaExceededError");
  bytes.set(view(source.getRandomBytes(bytes.length)));
  return array;
}

let drawn = new Float64Array();
let next = 0;

/** `Math.random`: the 52 bits of a number between 1 and 2, drawn a thousand at a time. */
export function random() {
  if (next === drawn.length) {
    const bytes = view(source.getRandomBytes(8192)).slice();
    for (let at = 0; at < bytes.length; at += 8) {
      bytes[at + 6] |= 0xf0;
      bytes[at + 7] = 0x3f;
    }
    drawn = new Float64Array(bytes.buffer);
    next = 0;
  }
  return drawn[next++] - 1;
}

/** Forget what was drawn: another instance that begins with this memory draws its own. */
export function rest() {
  drawn = new Float64Array();
  next = 0;
}

export function randomUUID() {
  const bytes = view(source.getRandomBytes(16));
  // RFC 9562: version 4, variant 10.
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  return bytes.toHex().replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

export const randomBytes = (size) => Buffer.from(view(source.getRandomBytes(size)));

export function randomInt(low, high) {
  const [from, to] = high === undefined ? [0, low] : [low, high];
  const range = to - from;
  if (!(Number.isSafeInteger(range) && range > 0)) throw new RangeError("The range must be a safe integer above zero");
  // 2 ** 53 has whole multiples of the range, and what lies beyond the last is drawn again.
  for (;;) {
    const drawn = view(source.getRandomBytes(7)).reduce((sum, byte, at) => sum + (at < 6 ? byte : byte & 0x1f) * 2 ** (8 * at), 0);
    if (drawn < 2 ** 53 - (2 ** 53 % range)) return from + (drawn % range);
  }
}

export const webcrypto = { getRandomValues, randomUUID };

export default { getRandomValues, randomUUID, randomBytes, randomInt, webcrypto };
