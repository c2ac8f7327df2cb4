// What a task finds as global beside the engine's own: what the Web and Node have in common.

import "core-js/web/url";
import "core-js/web/url-search-params";
import "core-js/web/structured-clone";
import { Blob, File } from "./blob.mjs";
import { consoleObject } from "./console.mjs";
import { AbortController, AbortSignal, CustomEvent, Event, EventTarget } from "./events.mjs";
import { Headers, Request, Response, fetch } from "./fetch.mjs";
import { timerGlobals } from "./loop.mjs";
import { TextDecoder, TextEncoder } from "./text.mjs";

Object.assign(globalThis, timerGlobals, {
  AbortController,
  AbortSignal,
  Blob,
  CustomEvent,
  Event,
  EventTarget,
  File,
  Headers,
  Request,
  Response,
  TextDecoder,
  TextEncoder,
  console: consoleObject,
  fetch,
  global: globalThis,
  self: globalThis,
});
