// `fetch` by way of the host, which alone can reach a network, and decides where to.

import { decode, encode, view } from "./bytes.mjs";
import { http } from "./host.mjs";

export class Headers {
  #pairs = [];

  constructor(init = []) {
    const pairs = init instanceof Headers || Array.isArray(init) ? init : Object.entries(init);
    for (const [name, value] of pairs) this.append(name, value);
  }
  append(name, value) {
    if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name)) throw new TypeError(`Invalid header name: ${name}`);
    const text = String(value).trim();
    if (/[\r\n\0]/.test(text)) throw new TypeError(`Invalid value of header ${name}`);
    this.#pairs.push([String(name).toLowerCase(), text]);
  }
  delete(name) {
    this.#pairs = this.#pairs.filter(([other]) => other !== String(name).toLowerCase());
  }
  set(name, value) {
    this.delete(name);
    this.append(name, value);
  }
  get(name) {
    const values = this.#pairs.filter(([other]) => other === String(name).toLowerCase());
    return values.length === 0 ? null : values.map(([, value]) => value).join(", ");
  }
  has(name) {
    return this.get(name) !== null;
  }
  getSetCookie() {
    return this.#pairs.filter(([name]) => name === "set-cookie").map(([, value]) => value);
  }
  forEach(callback, self) {
    for (const [name, value] of this) callback.call(self, value, name, this);
  }
  *entries() {
    for (const name of [...new Set(this.#pairs.map(([name]) => name))].sort()) yield [name, this.get(name)];
  }
  *keys() {
    for (const [name] of this.entries()) yield name;
  }
  *values() {
    for (const [, value] of this.entries()) yield value;
  }
  [Symbol.iterator]() {
    return this.entries();
  }
}

/** Return the bytes of a body, and the type of its content where the body says it. */
function body(value) {
  if (value === null || value === undefined) return [null, null];
  if (typeof value === "string") return [encode(value), "text/plain;charset=UTF-8"];
  if (value instanceof URLSearchParams) {
    return [encode(value.toString()), "application/x-www-form-urlencoded;charset=UTF-8"];
  }
  if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) return [view(value).slice(), null];
  return [encode(String(value)), "text/plain;charset=UTF-8"];
}

class Body {
  #bytes;
  bodyUsed = false;

  constructor(bytes) {
    this.#bytes = bytes;
  }
  get content() {
    return this.#bytes;
  }
  #take() {
    if (this.bodyUsed) throw new TypeError("Body is unusable: Body has already been read");
    this.bodyUsed = true;
    return this.#bytes ?? new Uint8Array();
  }
  async bytes() {
    return this.#take();
  }
  async arrayBuffer() {
    return this.#take().slice().buffer;
  }
  async text() {
    return decode(this.#take()).replace(/^\ufeff/, "");
  }
  async json() {
    return JSON.parse(await this.text());
  }
}

export class Request extends Body {
  constructor(input, options = {}) {
    const base = input instanceof Request ? input : null;
    const [bytes, type] = "body" in options ? body(options.body) : [base?.content ?? null, null];
    super(bytes);
    this.url = base?.url ?? new URL(String(input)).href;
    const method = String(options.method ?? base?.method ?? "GET");
    this.method = /^(get|head|post|put|delete|options)$/i.test(method) ? method.toUpperCase() : method;
    if (bytes !== null && /^(GET|HEAD)$/.test(this.method)) {
      throw new TypeError("Request with GET/HEAD method cannot have body");
    }
    this.headers = new Headers(options.headers ?? base?.headers ?? []);
    if (type !== null && !this.headers.has("content-type")) this.headers.set("content-type", type);
    this.signal = options.signal ?? base?.signal ?? null;
    this.redirect = options.redirect ?? base?.redirect ?? "follow";
    if (this.redirect !== "follow") throw new TypeError("The host follows redirects itself: redirect can only be 'follow'");
  }
  clone() {
    return new Request(this);
  }
}

export class Response extends Body {
  constructor(value = null, options = {}) {
    const [bytes, type] = body(value);
    super(bytes);
    this.status = options.status ?? 200;
    this.statusText = options.statusText ?? "";
    this.headers = new Headers(options.headers ?? []);
    if (type !== null && !this.headers.has("content-type")) this.headers.set("content-type", type);
    this.url = options.url ?? "";
    this.redirected = options.redirected ?? false;
    this.type = "default";
  }
  get ok() {
    return this.status >= 200 && this.status < 300;
  }
  clone() {
    return new Response(this.content, this);
  }
  static json(value, options = {}) {
    const headers = new Headers(options.headers ?? []);
    if (!headers.has("content-type")) headers.set("content-type", "application/json");
    return new Response(JSON.stringify(value), { ...options, headers });
  }
}

/** Make a request. It is over when this returns: the host answers at once. */
export async function fetch(input, options) {
  const request = new Request(input, options);
  request.signal?.throwIfAborted();
  const seconds = request.signal?.milliseconds === undefined ? null : request.signal.milliseconds / 1000;
  const answer = http(request.method, request.url, [...request.headers], request.content, seconds);
  return new Response(answer.body, {
    status: answer.status,
    statusText: answer.reason,
    headers: answer.headers,
    url: answer.url,
    redirected: answer.url !== request.url,
  });
}
