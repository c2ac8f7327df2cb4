// What the host can be asked. It answers by what this task was granted, whatever it is asked.

import { toBase64, fromBase64 } from "./bytes.mjs";

const askHost = globalThis.host;

/** The host refused: the task wasn't granted that. */
export class PermissionError extends Error {
  name = "PermissionError";
  code = "EPERM";
}

const KINDS = { permission: PermissionError, value: TypeError };

/** Ask the host and return its answer. */
export function ask(request) {
  const answer = JSON.parse(askHost(JSON.stringify(request)));
  if ("error" in answer) {
    const error = new (KINDS[answer.kind] ?? Error)(answer.error);
    if (answer.kind === "timeout") error.name = "TimeoutError";
    throw error;
  }
  return answer.answer;
}

/** Make a request: status, reason, url, headers (pairs), body (bytes). */
export function http(method, url, headers, body, timeout = null) {
  const answer = ask({
    op: "http",
    method,
    url,
    headers,
    body: body === null ? null : toBase64(body),
    timeout,
  });
  answer.body = fromBase64(answer.body);
  return answer;
}

const PIECE = 1 << 20;

/** Print a text: 1 is standard output, 2 standard error. */
export function print(stream, said) {
  const text = String(said).toWellFormed();
  for (let start = 0; start < text.length; ) {
    let end = Math.min(start + PIECE, text.length);
    const last = text.charCodeAt(end - 1);
    if (end < text.length && last >= 0xd800 && last < 0xdc00) end += 1;
    ask({ op: "print", stream, text: text.slice(start, end) });
    start = end;
  }
}
