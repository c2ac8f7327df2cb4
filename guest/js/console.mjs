// `console`, and its formats.

import { print } from "./host.mjs";
import { show } from "./inspect.mjs";

const counts = new Map();
const times = new Map();
let indent = "";

/** Return values as one line: `%s`, `%d`, `%i`, `%f`, `%j`, `%o`, `%O` of the first are filled in. */
export function format(...values) {
  let first = "";
  if (typeof values[0] === "string" && values.length > 1) {
    first = values.shift().replace(/%[sdifjoOc%]/g, (mark) => {
      if (mark === "%%") return "%";
      if (values.length === 0) return mark;
      const value = values.shift();
      if (mark === "%s") return typeof value === "string" ? value : show(value);
      if (mark === "%d") return String(Number(value));
      if (mark === "%i") return String(Number.parseInt(value, 10));
      if (mark === "%f") return String(Number.parseFloat(value));
      if (mark === "%j") return JSON.stringify(value);
      return mark === "%c" ? "" : show(value);
    });
    if (values.length > 0) first += " ";
  }
  return first + values.map((value) => (typeof value === "string" ? value : show(value))).join(" ");
}

const say = (stream) => (...values) => print(stream, indent + format(...values).replaceAll("\n", `\n${indent}`) + "\n");
const log = say(1);
const warn = say(2);

export const consoleObject = {
  log,
  info: log,
  debug: log,
  dir: (value, options) => log(show(value, options)),
  table: (value) => log(value),
  warn,
  error: warn,
  trace: (...values) => warn("Trace:", ...values),
  assert: (fine, ...values) => {
    if (!fine) warn("Assertion failed" + (values.length > 0 ? ":" : ""), ...values);
  },
  group: (...values) => {
    if (values.length > 0) log(...values);
    indent += "  ";
  },
  groupEnd: () => {
    indent = indent.slice(2);
  },
  count: (name = "default") => {
    counts.set(name, (counts.get(name) ?? 0) + 1);
    log(`${name}: ${counts.get(name)}`);
  },
  countReset: (name = "default") => counts.delete(name),
  time: (name = "default") => times.set(name, performance.now()),
  timeLog: (name = "default") => log(`${name}: ${(performance.now() - times.get(name)).toFixed(3)}ms`),
  timeEnd: (name = "default") => {
    consoleObject.timeLog(name);
    times.delete(name);
  },
};
consoleObject.groupCollapsed = consoleObject.group;
