// `process`: the arguments, the variables that were granted, and what prints.

import environment from "wasi:cli/environment@0.2.0";
import { decode, view } from "../bytes.mjs";
import { print } from "../host.mjs";

/** The task ended itself by `process.exit`. */
export class Exit extends Error {
  name = "Exit";

  constructor(status) {
    super(`process.exit(${status})`);
    this.status = status;
  }
}

let variables = null;
let folder = "/";

/** Set the working folder. */
export function setFolder(path) {
  folder = path;
}

/** Forget the variables: another instance that begins with this memory has its own. */
export function rest() {
  variables = null;
}

const stream = (number) => ({
  write: (data, ...rest) => {
    print(number, typeof data === "string" ? data : decode(view(data)));
    rest.find((one) => typeof one === "function")?.();
    return true;
  },
  isTTY: false,
  columns: 80,
  on() {
    return this;
  },
  once() {
    return this;
  },
  end(data) {
    if (data !== undefined) this.write(data);
  },
});

const nothing = () => process;

const process = {
  argv: [],
  get env() {
    // Not in the snapshot: what a task was granted is known when it begins.
    variables ??= Object.fromEntries(environment.getEnvironment());
    return variables;
  },
  stdout: stream(1),
  stderr: stream(2),
  platform: "wasi",
  arch: "wasm32",
  pid: 1,
  title: "capsule",
  version: "v24.0.0",
  versions: { quickjs: "ng" },
  execArgv: [],
  exitCode: undefined,
  cwd: () => folder,
  exit: (status = process.exitCode ?? 0) => {
    throw new Exit(status);
  },
  nextTick: (callback, ...args) => queueMicrotask(() => callback(...args)),
  uptime: () => performance.now() / 1000,
  hrtime: Object.assign(
    (since = [0, 0]) => {
      const now = performance.now();
      const [seconds, rest] = [Math.floor(now / 1000), Math.round((now % 1000) * 1e6)];
      const borrow = rest < since[1] ? 1 : 0;
      return [seconds - since[0] - borrow, rest - since[1] + borrow * 1e9];
    },
    { bigint: () => BigInt(Math.round(performance.now() * 1e6)) },
  ),
  memoryUsage: () => {
    const used = globalThis.__cqjs.getMemoryUsage();
    return { rss: used.mallocSize, heapTotal: used.mallocSize, heapUsed: used.memoryUsedSize, external: 0, arrayBuffers: 0 };
  },
  emitWarning: (warning) => print(2, `Warning: ${warning}\n`),
  on: nothing,
  once: nothing,
  off: nothing,
  addListener: nothing,
  removeListener: nothing,
  removeAllListeners: nothing,
  emit: () => false,
  listenerCount: () => 0,
};

export default process;
