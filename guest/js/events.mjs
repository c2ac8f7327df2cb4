// Events and aborting, as the DOM Standard has them, without a tree.

export class Event {
  constructor(type, options = {}) {
    this.type = String(type);
    this.cancelable = Boolean(options.cancelable);
    this.bubbles = this.defaultPrevented = false;
    this.timeStamp = performance.now();
    this.target = this.currentTarget = null;
  }
  preventDefault() {
    this.defaultPrevented = this.cancelable;
  }
  stopImmediatePropagation() {
    this.stopped = true;
  }
  stopPropagation() {}
}

export class CustomEvent extends Event {
  constructor(type, options = {}) {
    super(type, options);
    this.detail = options.detail ?? null;
  }
}

export class EventTarget {
  #listeners = [];

  addEventListener(type, callback, options = {}) {
    if (callback === null || this.#listeners.some((one) => one.type === type && one.callback === callback)) return;
    this.#listeners.push({ type, callback, once: typeof options === "object" && Boolean(options.once) });
  }
  removeEventListener(type, callback) {
    this.#listeners = this.#listeners.filter((one) => one.type !== type || one.callback !== callback);
  }
  dispatchEvent(event) {
    event.target = event.currentTarget = this;
    for (const one of this.#listeners.filter((listener) => listener.type === event.type)) {
      if (one.once) this.removeEventListener(one.type, one.callback);
      if (typeof one.callback === "function") one.callback.call(this, event);
      else one.callback.handleEvent(event);
      if (event.stopped) break;
    }
    return !event.defaultPrevented;
  }
}

export class AbortSignal extends EventTarget {
  aborted = false;
  reason = undefined;
  onabort = null;

  static abort(reason) {
    const controller = new AbortController();
    controller.abort(reason);
    return controller.signal;
  }
  static timeout(milliseconds) {
    const controller = new AbortController();
    const late = new DOMException("The operation was aborted due to timeout", "TimeoutError");
    controller.signal.milliseconds = milliseconds;
    setTimeout(() => controller.abort(late), milliseconds).unref();
    return controller.signal;
  }
  static any(signals) {
    const controller = new AbortController();
    for (const signal of signals) {
      if (signal.aborted) controller.abort(signal.reason);
      else signal.addEventListener("abort", () => controller.abort(signal.reason), { once: true });
    }
    return controller.signal;
  }
  throwIfAborted() {
    if (this.aborted) throw this.reason;
  }
}

export class AbortController {
  signal = new AbortSignal();

  abort(reason = new DOMException("This operation was aborted", "AbortError")) {
    if (this.signal.aborted) return;
    this.signal.aborted = true;
    this.signal.reason = reason;
    const event = new Event("abort");
    this.signal.onabort?.(event);
    this.signal.dispatchEvent(event);
  }
}
