// Texts to bytes and back, by what the engine does in C: a loop over characters would use up a task's compute.

/** Return the UTF-8 of a text. */
export function encode(text) {
  const whole = String(text).toWellFormed();
  return Uint8Array.fromBase64(btoa(unescape(encodeURIComponent(whole))));
}

/** Return the text of UTF-8; where it isn't, U+FFFD, or an error when it must be. */
export function decode(bytes, fatal = false) {
  const binary = atob(bytes.toBase64());
  try {
    return decodeURIComponent(escape(binary));
  } catch {
    if (fatal) throw new TypeError("The encoded data was not valid utf-8");
    return lenient(bytes);
  }
}

/** Return bytes as base64. */
export const toBase64 = (bytes) => bytes.toBase64();

/** Return the bytes of base64. */
export const fromBase64 = (text) => Uint8Array.fromBase64(text);

/** Return any kind of bytes as a Uint8Array over the same memory. */
export function view(value) {
  if (value instanceof Uint8Array) return value;
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  return new Uint8Array(value);
}

// Encoding Standard, "UTF-8 decoder": one U+FFFD for each maximal part of a broken sequence.
function lenient(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; ) {
    const first = bytes[at++];
    if (first < 0x80) {
      text += String.fromCharCode(first);
      continue;
    }
    const more = first >= 0xc2 && first < 0xe0 ? 1 : first >= 0xe0 && first < 0xf0 ? 2 : first >= 0xf0 && first < 0xf5 ? 3 : 0;
    let low = first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
    let high = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
    let point = first & (0x3f >> more);
    let left = more;
    while (left > 0 && bytes[at] >= low && bytes[at] <= high) {
      point = (point << 6) | (bytes[at++] & 0x3f);
      low = 0x80;
      high = 0xbf;
      left -= 1;
    }
    text += more > 0 && left === 0 ? String.fromCodePoint(point) : "\ufffd";
  }
  return text;
}
