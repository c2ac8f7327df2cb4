// Where an error comes from, in the words of the files that the bundle was made of.

import { ask } from "./host.mjs";
import { SourceMap } from "./map.mjs";

const FRAME = /<input>:(\d+):(\d+)/g;
const OWN = /componentize-qjs:|^ *at (<eval> \(|eval \(native\))/;

let map = null;

/** Set what says where a line comes from. */
export function setMap(other) {
  map = other;
}

/** Return an error's trace without the guest's own frames, and the places in it, as `file, line N`. */
export function trace(error, path) {
  const places = [];
  const lines = String(error?.stack ?? "")
    .split("\n")
    .filter((line) => line !== "" && !OWN.test(line));
  const text = lines.join("\n").replace(FRAME, (_, line, column) => {
    map ??= sourceMap();
    const place = map.place(Number(line), Number(column) - 1) ?? path;
    places.push(place);
    return place.replace(", line ", ":");
  });
  return { text, places };
}

function sourceMap() {
  try {
    return new SourceMap(ask({ op: "module", name: "source_map" })?.source);
  } catch {
    return new SourceMap(null);
  }
}
