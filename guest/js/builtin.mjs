// Modules of Node that a task can import, as far as they make sense without a machine of one's own.

import assert from "unenv/node/assert";
import asyncHooks from "unenv/node/async_hooks";
import buffer, { Buffer } from "unenv/node/buffer";
import events from "unenv/node/events";
import path from "unenv/node/path";
import querystring from "unenv/node/querystring";
import stringDecoder from "unenv/node/string_decoder";
import url from "unenv/node/url";
import nodeUtil from "unenv/node/util";
import utilTypes from "unenv/node/util/types";
import { format } from "./console.mjs";
import { custom, show } from "./inspect.mjs";
import { timerGlobals } from "./loop.mjs";
import crypto, { random, webcrypto } from "./node/crypto.mjs";
import fs, { promises } from "./node/fs.mjs";
import process from "./node/process.mjs";
import * as sdk from "./sdk.mjs";

// The engine's own generator is in the snapshot: every run would draw the same numbers.
Math.random = random;
Object.assign(globalThis, { Buffer, crypto: webcrypto, process });

const util = { ...nodeUtil, format, inspect: Object.assign(show, { custom }), TextDecoder, TextEncoder };
const os = { EOL: "\n", platform: () => "wasi", type: () => "WASI", arch: () => "wasm32", cpus: () => [], hostname: () => "capsule", tmpdir: () => "/tmp", homedir: () => "/", release: () => "", endianness: () => "LE" };
const wait = (milliseconds, value) => new Promise((done) => setTimeout(() => done(value), milliseconds));
const { task, run } = sdk;

const modules = {
  "@capsule-build/sdk": { task, run },
  "@capsule-build/sdk/runner": { run },
  "@capsule-run/sdk": { task, run },
  "@capsule-run/sdk/runner": { run },
  assert,
  async_hooks: asyncHooks,
  buffer,
  console,
  crypto,
  events,
  fs,
  "fs/promises": promises,
  os,
  path,
  "path/posix": path,
  process,
  querystring,
  string_decoder: stringDecoder,
  timers: timerGlobals,
  "timers/promises": { setTimeout: wait, setImmediate: (value) => wait(0, value) },
  url,
  util,
  "util/types": utilTypes,
};

const NO_PACKAGE = "it isn't among the file's packages, and the sandbox has no such module of Node";

/** Return a module by its name: the `require` of a task, whose own modules and packages are in its bundle. */
export function builtin(name, missing = NO_PACKAGE) {
  const found = modules[String(name).replace(/^node:/, "")];
  if (found !== undefined) return found;
  const error = new Error(`Cannot find module '${name}': ${missing}`);
  throw Object.assign(error, { code: "MODULE_NOT_FOUND" });
}
