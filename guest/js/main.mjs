// The guest's side: one instance reads a file's tasks, runs one of them, or does a run of a session. Made into a
// snapshot when it is built.
//
// Nothing here guards anything: the code of a task may change all of it. What a task may do is decided by the host.

import "./globals.mjs";
import { describe } from "./reading.mjs";
import { runTask } from "./running.mjs";
import { grow, runPiece } from "./session.mjs";

/** Answer the host's one request to this instance. */
export async function call(request) {
  const wanted = JSON.parse(request);
  if (wanted.op === "describe") return JSON.stringify(describe(wanted.source, wanted.path, wanted.map));
  if (wanted.op === "piece") return runPiece(wanted);
  if (wanted.op === "grow") return grow(wanted.blocks);
  return runTask(wanted);
}

/** See `task.wit`. */
export function later() {
  const { readable, writable } = globalThis.wit.Future();
  writable.write(0);
  return readable;
}
