// `@capsule-build/sdk`, and `@capsule-run/sdk`, as a task sees it.

import { ask } from "./host.mjs";

const registered = new Map();

/**
 * Mark a function as a task. Called from a task, it runs in an instance of its own and returns its envelope.
 *
 * The options count as the file has them: what they are when the file is run changes nothing.
 */
export function task(options, run) {
  if (typeof run !== "function") throw new TypeError("task(options, function): there is no function");
  const call = (...args) => ask({ op: "task", name: call.taskName, args, kwargs: {} });
  call.taskName = options.name;
  call.run = run;
  if (options.name !== undefined) registered.set(options.name, run);
  return call;
}

/** Give tasks without a name that of their export, by which the host knows them. */
export function adopt(exported) {
  for (const [name, value] of Object.entries(exported ?? {})) {
    if (typeof value === "function" && value.run !== undefined && value.taskName === undefined) {
      value.taskName = name;
      registered.set(name, value.run);
    }
  }
}

/** Return the function of a task, if the file has called `task` for it by now. */
export const functionOf = (name) => registered.get(name);

/** Refuse: programs run tasks from outside. */
export function run() {
  throw new Error("a task can't start capsules; it calls other tasks of its file");
}
