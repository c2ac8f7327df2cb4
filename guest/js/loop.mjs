// The event loop: promises are the engine's own; timers wait here, in slices, so that the host can end them.

import clock from "wasi:clocks/monotonic-clock@0.2.0";

const SLICE_NS = 20_000_000;

let timers = [];
let order = 0;
let rested = null;

/** Resolve after all promises that are ready have been dealt with. */
export function settled() {
  const { readable, writable } = globalThis.wit.Future();
  const read = readable.read();
  writable.write(0);
  return read;
}

class Timeout {
  constructor(callback, delay, args, every) {
    if (typeof callback !== "function") throw new TypeError("The callback must be a function");
    this.delay = Math.max(Number(delay) || 0, every ? 1 : 0);
    Object.assign(this, { callback, args, every, id: ++order, held: true });
    this.start();
  }
  start() {
    this.due = performance.now() + this.delay;
    timers.push(this);
  }
  ref() {
    this.held = true;
    return this;
  }
  unref() {
    this.held = false;
    return this;
  }
  hasRef() {
    return this.held;
  }
  [Symbol.toPrimitive]() {
    return this.id;
  }
}

const clear = (timer) => {
  const id = Number(timer ?? 0);
  timers = timers.filter((other) => other.id !== id);
};

/** The timers of the Web and of Node. */
export const timerGlobals = {
  setTimeout: (callback, delay, ...args) => new Timeout(callback, delay, args, false),
  setInterval: (callback, delay, ...args) => new Timeout(callback, delay, args, true),
  setImmediate: (callback, ...args) => new Timeout(callback, 0, args, false),
  clearTimeout: clear,
  clearInterval: clear,
  clearImmediate: clear,
};

/** Run timers until a promise is settled, and return what it gives. */
export async function until(promise) {
  let done = false;
  promise.then(
    () => (done = true),
    () => (done = true),
  );
  for (;;) {
    await settled();
    if (done) return promise;
    if (timers.length === 0) {
      throw new Error("the task waits for a promise that nothing in the sandbox can settle");
    }
    step();
  }
}

/** Run timers until no timer is left that holds the program, as Node does before it ends. */
export async function drain() {
  for (;;) {
    await settled();
    if (!timers.some((timer) => timer.held)) return;
    step();
  }
}

/** Run the timer that is next, or wait for it no longer than a slice. */
function step() {
  const next = timers.reduce((a, b) => (b.due < a.due || (b.due === a.due && b.id < a.id) ? b : a));
  const left = next.due - performance.now();
  if (left > 0) {
    const wait = clock.subscribeDuration(Math.ceil(Math.min(left * 1e6, SLICE_NS)));
    wait.block();
    wait[Symbol.dispose]();
    return;
  }
  timers = timers.filter((other) => other !== next);
  if (next.every) next.start();
  next.callback(...next.args);
}

/** Note the time before this instance ends. */
export function rest() {
  rested = performance.now();
}

/** Go on in another instance, whose clock is another one: what is left of a timer's time stays. */
export function rebase() {
  if (rested === null) return;
  const passed = performance.now() - rested;
  for (const timer of timers) timer.due += passed;
  rested = null;
}
