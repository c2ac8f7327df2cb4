// One task, from its file's text to its answer.

import { builtin } from "./builtin.mjs";
import { PermissionError, print } from "./host.mjs";
import { show } from "./inspect.mjs";
import { until } from "./loop.mjs";
import process, { Exit } from "./node/process.mjs";
import { adopt, functionOf } from "./sdk.mjs";
import { trace } from "./stack.mjs";

const DENIED = ["EPERM", "EACCES", "EROFS"];

/** Run a task and return its answer as JSON: `{result}` or `{error: {type, message}}`. */
export async function runTask(wanted) {
  try {
    const result = await until(outcome(wanted));
    return whole(result);
  } catch (error) {
    return JSON.stringify({ error: asError(error, wanted.path) });
  }
}

// Whole before the answer is begun: a result that isn't JSON is an error of the task, and it ran once.
function whole(result) {
  if (result === undefined) return '{"result": null}';
  const text = JSON.stringify(result);
  if (text === undefined) throw new TypeError(`a result of type ${typeof result} is not JSON`);
  return `{"result": ${text}}`;
}

async function outcome(wanted) {
  process.argv = ["capsule", wanted.path, ...wanted.args.map((arg) => (typeof arg === "string" ? arg : JSON.stringify(arg)))];
  if (Object.keys(wanted.kwargs).length > 0) throw new TypeError("a JavaScript task has no keyword arguments");
  const module = { exports: {} };
  // On one line, so that lines stay those of the source map.
  const code = `(function (require, module, exports) {${wanted.source}\n})`;
  (0, eval)(code)(builtin, module, module.exports);
  adopt(module.exports);
  const task = wanted.plain ? plain(module.exports, wanted.function) : functionOf(wanted.task);
  if (typeof task !== "function") throw new ReferenceError(`the file defines no task '${wanted.task}' when it is run`);
  return task(...wanted.args);
}

const plain = (exported, name) => exported[name] ?? exported.default;

const ownCode = (place) => !place.includes("node_modules/");

/** Return `{type, message}` of what was thrown, with the innermost place of one's own code; print it with its trace. */
export function asError(error, path, isOwn = ownCode) {
  if (error instanceof Exit) return { type: "task_error", message: `The task ended itself: process.exit(${error.status}).` };
  const name = error instanceof Error || error instanceof DOMException ? String(error.name) : "Error";
  const text = name === "Error" && !(error instanceof Error) ? `thrown: ${shown(error)}` : String(error.message);
  const { text: lines, places } = trace(error, path);
  try {
    print(2, `${name}: ${text}\n${lines && `${lines}\n`}`);
  } catch {
    // What can't be said doesn't change what is done.
  }
  let type = "task_error";
  if (/out of memory/.test(text) && name === "InternalError") type = "memory_exceeded";
  else if (error instanceof PermissionError || DENIED.includes(error?.code)) type = "permission_denied";
  const where = places.find(isOwn) ?? places[0];
  return { type, message: `${name}: ${text}${where ? ` (${where})` : ""}` };
}

function shown(value) {
  try {
    return show(value).slice(0, 1000);
  } catch {
    return typeof value;
  }
}
