// Values as texts for people: as Node.js shows them, near enough to be read, and never without an end.

import { trace } from "./stack.mjs";

/** Objects may define this to say how they are shown. */
export const custom = Symbol.for("nodejs.util.inspect.custom");

const WIDTH = 72;
const MAX_ITEMS = 100;
const MAX_TEXT = 10_000;
const PLAIN_KEY = /^[A-Za-z_$][\w$]*$/;
const ESCAPES = { "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", "\\": "\\\\" };
const TypedArray = Object.getPrototypeOf(Uint8Array);

/**
 * Return how a value is shown.
 *
 * @param {unknown} value
 * @param {{depth?: number | null}} options How deep objects in it are shown: two levels; `null`: all.
 */
export function show(value, options = {}) {
  const depth = options?.depth === undefined ? 2 : (options.depth ?? Infinity);
  const shower = new Shower(depth);
  return shower.show(value, 0, 0);
}

class Shower {
  constructor(depth) {
    this.depth = depth;
    this.open = [];
    this.cycles = new Map();
  }

  /** `level`: how many objects it lies in; `indent`: how many columns the lines begin with. */
  show(value, level, indent) {
    if (typeof value === "string") return text(value);
    if (typeof value === "bigint") return `${value}n`;
    if (Object.is(value, -0)) return "-0";
    if ((typeof value !== "object" && typeof value !== "function") || value === null) return String(value);
    if (this.open.includes(value)) {
      if (!this.cycles.has(value)) this.cycles.set(value, this.cycles.size + 1);
      return `[Circular *${this.cycles.get(value)}]`;
    }
    const own = value[custom];
    if (typeof own === "function") {
      const said = own.call(value, this.depth - level, { depth: this.depth - level }, show);
      return typeof said === "string" ? said : this.show(said, level, indent);
    }
    this.open.push(value);
    const shown = this.#object(value, level, indent);
    this.open.pop();
    return this.cycles.has(value) ? `<ref *${this.cycles.get(value)}> ${shown}` : shown;
  }

  #object(value, level, indent) {
    const { head, opening, closing, items, skip, short } = this.#parts(value, level, indent + 2);
    const keys = keysOf(value).filter((key) => !skip(key));
    if (keys.length + items.length === 0 && head !== "" && opening === "{" && short === undefined) return head;
    if (level > this.depth && short !== undefined && keys.length + items.length > 0) return `[${short}]`;
    for (const key of keys.slice(0, MAX_ITEMS)) items.push(this.#property(value, key, level, indent + 2));
    more(items, keys.length, "key");
    const before = head === "" ? "" : `${head} `;
    if (items.length === 0) return `${before}${opening}${closing}`;
    const line = `${before}${opening} ${items.join(", ")} ${closing}`;
    if (line.length + indent <= WIDTH && !line.includes("\n")) return line;
    const margin = " ".repeat(indent + 2);
    const rows = opening === "[" && keys.length === 0 ? filled(items, indent + 2) : items;
    return `${before}${opening}\n${margin}${rows.join(`,\n${margin}`)}\n${" ".repeat(indent)}${closing}`;
  }

  /** What a kind of object has beside its properties. `short`: what it is called where that is too deep. */
  #parts(value, level, indent) {
    const name = className(value);
    const deep = level > this.depth;
    const inner = (one) => (deep ? "" : this.show(one, level + 1, indent));
    const parts = { head: "", opening: "{", closing: "}", items: [], skip: () => false };
    if (Array.isArray(value) || value instanceof TypedArray) {
      const plain = Array.isArray(value) && name === "Array";
      const items = elements(value, inner);
      const skip = (key) => typeof key === "string" && /^\d+$/.test(key);
      return { ...parts, head: plain ? "" : `${name}(${value.length})`, opening: "[", closing: "]", items, skip, short: name };
    }
    if (value instanceof Map) {
      const items = bounded(value, (entries) => entries.map(([key, one]) => `${inner(key)} => ${inner(one)}`));
      return { ...parts, head: `${name}(${value.size})`, items, short: name };
    }
    if (value instanceof Set) {
      return { ...parts, head: `${name}(${value.size})`, items: bounded(value, (entries) => entries.map(inner)), short: name };
    }
    if (value instanceof Error) {
      const { text: lines } = trace(value, "the file");
      const head = `${said(value)}${lines === "" ? "" : `\n${lines}`}`.trimEnd();
      return { ...parts, head: lines === "" ? `[${head}]` : head, skip: (key) => ["name", "message", "stack"].includes(key) };
    }
    if (typeof value === "function") return { ...parts, head: functionName(value) };
    if (value instanceof Date) return { ...parts, head: Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString() };
    if (value instanceof RegExp) return { ...parts, head: String(value) };
    if (value instanceof ArrayBuffer) {
      const bytes = new Uint8Array(value, 0, Math.min(value.byteLength, 50)).toHex().replace(/..(?!$)/g, "$& ");
      const items = [`[Uint8Contents]: <${bytes}${value.byteLength > 50 ? " ..." : ""}>`, `byteLength: ${value.byteLength}`];
      return { ...parts, head: name, items, short: name };
    }
    for (const Boxed of [Number, String, Boolean]) {
      if (value instanceof Boxed) {
        const skip = (key) => Boxed === String && /^\d+$/.test(String(key));
        return { ...parts, head: `[${Boxed.name}: ${this.show(value.valueOf(), level, indent)}]`, skip };
      }
    }
    const hidden = value instanceof WeakMap || value instanceof WeakSet ? ["<items unknown>"] : value instanceof Promise ? ["<state unknown>"] : [];
    return { ...parts, head: name === "Object" ? "" : name, items: hidden, short: name };
  }

  #property(value, key, level, indent) {
    const shownKey = typeof key === "symbol" ? `[${String(key)}]` : PLAIN_KEY.test(key) ? key : text(key);
    const { get, set, value: held } = Object.getOwnPropertyDescriptor(value, key) ?? {};
    if (get !== undefined) return `${shownKey}: ${set === undefined ? "[Getter]" : "[Getter/Setter]"}`;
    return `${shownKey}: ${set === undefined ? this.show(held, level + 1, indent) : "[Setter]"}`;
  }
}

function text(value) {
  const over = value.length - MAX_TEXT;
  const shown = over > 0 ? value.slice(0, MAX_TEXT) : value;
  const quote = ["'", '"', "`"].find((mark) => !shown.includes(mark)) ?? "'";
  const escaped = shown
    .toWellFormed()
    .replace(/[\0-\x1f\x7f-\x9f\\]/g, (one) => ESCAPES[one] ?? `\\x${one.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`);
  const whole = quote + (quote === "'" ? escaped.replaceAll("'", "\\'") : escaped) + quote;
  return over > 0 ? `${whole}... ${over} more character${over === 1 ? "" : "s"}` : whole;
}

function keysOf(value) {
  const symbols = Object.getOwnPropertySymbols(value).filter((key) => Object.prototype.propertyIsEnumerable.call(value, key));
  return [...Object.keys(value), ...symbols];
}

function elements(array, shown) {
  const items = [];
  let at = 0;
  while (at < array.length && items.length < MAX_ITEMS) {
    const begin = at;
    while (at < array.length && !(at in array)) at += 1;
    if (at > begin) items.push(`<${at - begin} empty item${at - begin === 1 ? "" : "s"}>`);
    else items.push(shown(array[at++]));
  }
  if (at < array.length) items.push(`... ${array.length - at} more item${array.length - at === 1 ? "" : "s"}`);
  return items;
}

function bounded(collection, shown) {
  const entries = [];
  for (const one of collection) {
    if (entries.length === MAX_ITEMS) break;
    entries.push(one);
  }
  return more(shown(entries), collection.size, "item");
}

function more(items, count, what) {
  if (count > MAX_ITEMS) items.push(`... ${count - MAX_ITEMS} more ${what}${count - MAX_ITEMS === 1 ? "" : "s"}`);
  return items;
}

/** Put short items into as few lines as they need. */
function filled(items, indent) {
  if (items.length <= 6 || items.some((one) => one.length > 16 && !one.startsWith("... "))) return items;
  const width = Math.max(...items.map((one) => (one.startsWith("... ") ? 0 : one.length)));
  const columns = Math.max(1, Math.floor((WIDTH - indent) / (width + 2)));
  const rows = [];
  const last = items.at(-1).startsWith("... ") ? [items.at(-1)] : [];
  const cells = items.slice(0, items.length - last.length);
  const right = cells.every((one) => /^-?[\d.]/.test(one));
  for (let at = 0; at < cells.length; at += columns) {
    const row = cells.slice(at, at + columns);
    rows.push(row.map((one, n) => (right ? one.padStart(width) : n + 1 < row.length ? `${one},`.padEnd(width + 1) : one)).join(right ? ", " : " "));
  }
  return [...rows, ...last];
}

function className(value) {
  for (let one = value; one !== null; one = Object.getPrototypeOf(one)) {
    const made = Object.getOwnPropertyDescriptor(one, "constructor")?.value;
    if (typeof made === "function" && made.name !== "") {
      const shown = Object.prototype.propertyIsEnumerable.call(value, Symbol.toStringTag);
      const tag = shown ? "" : value[Symbol.toStringTag];
      return typeof tag === "string" && tag !== "" && tag !== made.name ? `${made.name} [${tag}]` : made.name;
    }
  }
  return "[Object: null prototype]";
}

function functionName(value) {
  const source = Function.prototype.toString.call(value);
  if (/^class\b/.test(source)) {
    const parent = Object.getPrototypeOf(value);
    return `[class ${value.name || "(anonymous)"}${parent?.name ? ` extends ${parent.name}` : ""}]`;
  }
  const kind = Object.getPrototypeOf(value)?.[Symbol.toStringTag] ?? "Function";
  return `[${kind}${value.name ? `: ${value.name}` : " (anonymous)"}]`;
}

function said(error) {
  const name = error.name || "Error";
  return error.message ? `${name}: ${error.message}` : String(name);
}
