// A run of a session. The memory of this guest is kept when it has succeeded, and the next run begins with it: so
// nothing may be left of what belongs to this instance alone.

import { builtin } from "./builtin.mjs";
import { show } from "./inspect.mjs";
import { drain, rebase, rest as restTimers, until } from "./loop.mjs";
import { rest as restRandom } from "./node/crypto.mjs";
import { rest as restFiles } from "./node/fs.mjs";
import { rest as restProcess, setFolder } from "./node/process.mjs";
import { asError } from "./running.mjs";
import { HELPER, rewrite } from "./script.mjs";
import { setMap } from "./stack.mjs";

const BLOCK = 32 << 10;
const NO_PACKAGES = "a run has no packages, and the sandbox has no such module of Node";

// The first line of each run's text, as the engine counts: no two runs have a line in common, so it tells them apart.
const starts = [];
const constants = new Set();
let lines = 0;

const require = (name) => builtin(name, NO_PACKAGES);

const helper = {
  import: async (name) => space(require(String(name))),
  take: (name, names) => names.map((one) => (one === "*" ? space(require(name)) : one === "default" ? require(name) : member(name, one))),
  constant: new Proxy(Object.create(null), {
    get: (_, name) => globalThis[name],
    set: (_, name) => {
      throw new TypeError(`Assignment to constant variable '${String(name)}'.`);
    },
  }),
};

const space = (module) => ({ ...module, default: module });

function member(name, one) {
  const module = require(name);
  if (!(one in module)) throw new SyntaxError(`The module '${name}' has no export named '${one}'`);
  return module[one];
}

function hide(values) {
  for (const [name, value] of Object.entries(values)) {
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  }
}

/**
 * Run a text and return the answer as JSON: `{result: {value}}`, which is how the value of its last expression is
 * shown, or `null`; or `{error}` as that of a task.
 */
export async function runPiece(wanted) {
  const path = `<run ${starts.length + 1}>`;
  try {
    begin(wanted.path);
    const text = await outcome(await until(execute(wanted.source)));
    rest();
    return JSON.stringify({ result: { value: text } });
  } catch (error) {
    if (error?.line !== undefined && error instanceof SyntaxError) error.message += ` (${path}, line ${error.line})`;
    return JSON.stringify({ error: asError(error, path, (place) => place.startsWith(path)) });
  }
}

function begin(folder) {
  if (starts.length === 0) {
    const module = { exports: {} };
    hide({ require, module, exports: module.exports, [HELPER]: helper });
    setMap({ place });
  }
  setFolder(folder);
  rebase();
}

function place(line) {
  const run = starts.findLastIndex((start) => start <= line);
  return run < 0 ? undefined : `<run ${run + 1}>, line ${line - starts[run] + 1}`;
}

async function execute(source) {
  starts.push(lines + 1);
  const before = "\n".repeat(lines);
  lines += source.split("\n").length + 1;
  const { first, main, variables, lexical, functions, constants: fixed, strict } = rewrite(source, constants);
  for (const name of [...variables, ...lexical, ...functions]) constants.delete(name);
  for (const name of fixed) constants.add(name);
  for (const name of lexical) settable(name);
  for (const name of strict ? [...variables, ...lexical, ...functions] : variables) {
    if (!(name in globalThis)) globalThis[name] = undefined;
  }
  if (first !== null) (0, eval)(before + first);
  return (0, eval)(`${before}(async () => {${main}\n})()`);
}

/** What the engine has by that name can't always be assigned, and a declaration of its own hides it. */
function settable(name) {
  const own = Object.getOwnPropertyDescriptor(globalThis, name);
  if (own === undefined || own.writable || !own.configurable) return;
  hide({ [name]: globalThis[name] });
}

/** Wait until nothing is left to do, and return how a value is shown. */
async function outcome(given) {
  const value = given?.[0];
  if (!(value instanceof Promise)) {
    await drain();
    return value === undefined ? null : show(value);
  }
  let settled = null;
  value.then(
    (result) => (settled = { result }),
    (error) => (settled = { error }),
  );
  await drain();
  if (settled === null) return "Promise { <pending> }";
  if ("error" in settled) throw settled.error;
  return settled.result === undefined ? null : show(settled.result);
}

function rest() {
  restTimers();
  restRandom();
  restFiles();
  restProcess();
}

const held = [];

/** Make the memory larger by no more than so many blocks. What it holds doesn't matter: another's takes its place. */
export function grow(blocks) {
  for (let made = 0; made < blocks; made += 1) held.push(new ArrayBuffer(BLOCK));
  return "";
}
