// Runs files of tasks for a program, by `capsule worker`: lines of JSON to it and from it. See runner.d.ts.

import { constants } from "node:buffer";
import { spawn } from "node:child_process";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";

const VARIABLE = "CAPSULE_COMMAND";
const NEWLINE = 10;
const SHOWN_BYTES = 200;

// The worker's own bound. It answers a longer request without its id.
const MAX_REQUEST_BYTES = 256 * 1024 * 1024;

/** The options that a request has, by the names that the worker has for them. */
const FIELDS = {
  file: "file",
  args: "args",
  kwargs: "kwargs",
  mounts: "mounts",
  packages: "packages",
  cwd: "cwd",
  sharedCompute: "shared_compute",
  trace: "trace",
  trust: "trust",
};

/** There is no answer. See runner.d.ts. */
export class WorkerError extends Error {
  get name() {
    return "WorkerError";
  }
}

const shared = new Map();

/** Run a file. See runner.d.ts. */
export async function run({ command, ...options } = {}) {
  const words = wordsOf(command);
  const key = JSON.stringify(words);
  if (!shared.has(key)) shared.set(key, new Worker({ command: words }));
  return shared.get(key).run(options);
}

/** A worker. See runner.d.ts. */
export class Worker {
  #words;
  #environment;
  #conversation = null;

  constructor({ command, jobs, env } = {}) {
    this.#words = [...wordsOf(command), "worker", ...(jobs === undefined ? [] : ["--jobs", String(jobs)])];
    this.#environment = env;
  }

  get pid() {
    return this.#conversation?.ended === false ? this.#conversation.pid : undefined;
  }

  async run({ signal, onOutput, ...options } = {}) {
    const fields = fieldsOf(options);
    if (onOutput !== undefined && typeof onOutput !== "function") throw new TypeError("run(): onOutput must be a function");
    if (signal?.aborted) throw signal.reason;
    if (this.#conversation === null || this.#conversation.ended) {
      this.#conversation = new Conversation(this.#words, this.#environment);
    }
    return this.#conversation.ask({ ...fields, stream: onOutput !== undefined }, signal, onOutput);
  }

  async close() {
    const conversation = this.#conversation;
    this.#conversation = null;
    await conversation?.close();
  }
}

function wordsOf(command = process.env[VARIABLE] || "capsule") {
  const words = typeof command === "string" ? [command] : command;
  if (!Array.isArray(words) || words.length === 0 || words.some((word) => typeof word !== "string" || word === "")) {
    throw new TypeError("command must be a program's name, or a list of it and its first words");
  }
  return words;
}

function fieldsOf(options) {
  const unknown = Object.keys(options).find((name) => !Object.hasOwn(FIELDS, name));
  if (unknown !== undefined) {
    const known = [...Object.keys(FIELDS), "signal", "onOutput", "command"];
    throw new TypeError(`run(): there is no option '${unknown}'. Options: ${known.join(", ")}`);
  }
  const file = pathOf(options.file);
  if (typeof file !== "string" || file === "") throw new TypeError("run(): file must be a path");
  // The worker may have been started elsewhere.
  const fields = { ...options, file, cwd: resolve(pathOf(options.cwd) ?? "."), trust: snakeCased(options.trust) };
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [FIELDS[name], value]));
}

function snakeCased(words) {
  if (words === undefined) return undefined;
  // JSON leaves out what is undefined, and what isn't an object's own: a signature would not be asked for, then.
  const values = Object.prototype.toString.call(words) === "[object Object]" ? Object.values(words) : [];
  if (values.length === 0 || values.includes(undefined)) {
    throw new TypeError("run(): trust must be an object with words of its own, none of which is undefined");
  }
  const name = (word) => word.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return Object.fromEntries(Object.entries(words).map(([word, value]) => [name(word), value]));
}

const pathOf = (value) => (value instanceof URL ? fileURLToPath(value) : value);

/** One worker process, from its start to its end, and who waits for it. */
class Conversation {
  ended = false;
  #program;
  #child;
  #closed;
  #waiting = new Map();
  #last = 0;
  #unsent = [];
  #unread = [];
  #unreadBytes = 0;

  constructor(words, env) {
    this.#program = words[0];
    this.#child = spawn(words[0], words.slice(1), { env, stdio: ["pipe", "pipe", "inherit"] });
    const { stdin, stdout } = this.#child;
    this.#closed = new Promise((done) => this.#child.on("close", done));
    this.#child.on("error", (error) => this.#end(notStarted(this.#program, error)));
    this.#child.on("exit", () => (this.ended = true));
    this.#child.on("close", (code, signal) => {
      const how = signal === null ? `with status ${code}` : `by signal ${signal}`;
      this.#end(new WorkerError(`The worker ('${this.#program}') ended ${how} before it had an answer.`));
    });
    stdout?.on("data", (data) => this.#hear(data));
    stdin?.on("drain", () => this.#send());
    // It is gone, which "close" tells all who wait.
    stdin?.on("error", () => {});
    this.#hold();
  }

  get pid() {
    return this.#child.pid;
  }

  ask(fields, signal, onOutput) {
    const id = String(++this.#last);
    const line = JSON.stringify({ id, ...fields });
    const size = Buffer.byteLength(line);
    if (size > MAX_REQUEST_BYTES) {
      throw new WorkerError(`A request may have ${MAX_REQUEST_BYTES} bytes, and this one has ${size}.`);
    }
    return new Promise((done, failed) => {
      const abort = () => this.#forget(id, signal.reason);
      const release = () => signal?.removeEventListener("abort", abort);
      signal?.addEventListener("abort", abort, { once: true });
      this.#waiting.set(id, { done, failed, release, onOutput });
      this.#hold();
      this.#unsent.push({ id, line });
      this.#send();
    });
  }

  /** End its input; it answers what it has first. */
  async close() {
    this.#send(true);
    this.#child.stdin?.end();
    this.#child.ref();
    await this.#closed;
  }

  /** Keep the program's event loop alive as long as somebody waits, and no longer. */
  #hold() {
    const { stdin, stdout } = this.#child;
    for (const handle of [this.#child, stdin, stdout]) {
      // What is closed would wait to be opened again.
      if (handle?.destroyed) continue;
      if (this.#waiting.size > 0) handle?.ref();
      else handle?.unref();
    }
  }

  /** Write what the pipe takes. The rest waits here, where a request that is cancelled can still be left out. */
  #send(all = false) {
    const { stdin } = this.#child;
    while (this.#unsent.length > 0 && (all || stdin?.writableNeedDrain === false)) stdin?.write(`${this.#unsent.shift().line}\n`);
  }

  #forget(id, reason) {
    const unsent = this.#unsent.findIndex((item) => item.id === id);
    if (unsent >= 0) {
      this.#unsent.splice(unsent, 1);
    } else {
      this.#unsent.push({ line: JSON.stringify({ id, cancel: true }) });
      this.#send();
    }
    this.#settle(id, (item) => item.failed(reason));
  }

  #settle(id, tell) {
    const item = this.#waiting.get(id);
    this.#waiting.delete(id);
    this.#hold();
    item.release();
    tell(item);
  }

  #end(error) {
    this.ended = true;
    for (const id of [...this.#waiting.keys()]) this.#settle(id, (item) => item.failed(error));
  }

  #hear(data) {
    let start = 0;
    let end = data.indexOf(NEWLINE);
    while (end >= 0) {
      this.#unread.push(data.subarray(start, end));
      const line = this.#unread.length === 1 ? this.#unread[0] : Buffer.concat(this.#unread);
      this.#unread = [];
      this.#unreadBytes = 0;
      this.#take(line);
      start = end + 1;
      end = data.indexOf(NEWLINE, start);
    }
    this.#unread.push(data.subarray(start));
    this.#unreadBytes += data.length - start;
    if (this.#unreadBytes > constants.MAX_STRING_LENGTH) {
      this.#kill(`gave an answer of more than ${constants.MAX_STRING_LENGTH} bytes, which Node.js can't hold.`);
    }
  }

  #take(line) {
    let said;
    try {
      said = JSON.parse(line.toString());
    } catch {
      said = null;
    }
    if (typeof said?.id !== "string") {
      this.#refuse(line);
      return;
    }
    const item = this.#waiting.get(said.id);
    // Without: it was cancelled meanwhile.
    if (item === undefined) return;
    if ("output" in said) this.#settle(said.id, () => item.done(said.output));
    else if (typeof said.error === "string") this.#settle(said.id, () => item.failed(new WorkerError(said.error)));
    else if (typeof said.text === "string" && item.onOutput) this.#print(said, item);
    else this.#refuse(line);
  }

  #print({ id, stream, text }, item) {
    try {
      item.onOutput(stream, text);
    } catch (error) {
      // It is the program's own, and would end all of it here.
      this.#forget(id, error);
    }
  }

  #refuse(line) {
    const said = line.toString("utf8", 0, SHOWN_BYTES);
    this.#kill(`said what is no answer: ${said}. Is it the capsule of capsule-build? ${elsewhere()}`);
  }

  /** End what can't be understood any more. */
  #kill(why) {
    this.#unread = [];
    this.#unreadBytes = 0;
    this.#child.kill("SIGKILL");
    this.#end(new WorkerError(`'${this.#program}' ${why}`));
  }
}

function notStarted(program, error) {
  const what = error.code === "ENOENT" ? `There is no program '${program}' to run tasks.` : `'${program}' can't be started: ${error.message}.`;
  return new WorkerError(`${what} The Python package capsule-build has it; in a checkout of that it is .venv/bin/capsule. ${elsewhere()}`, { cause: error });
}

const elsewhere = () => `Where it is elsewhere, name its path in the variable ${VARIABLE}, or in run()'s option 'command'.`;
