export { run, RunOptions, Signal, Trust, Worker, WorkerError, WorkerOptions, WorkerRunOptions } from "./runner.js";

/** A folder that a task may use, relative to the working folder. */
export interface AllowedFile {
  path: string;
  /** Default: `read-write`. */
  mode?: "ro" | "rw" | "read-only" | "read-write";
}

/** The limits and grants of a task. The host reads them from the file's syntax, before any of it runs. */
export interface TaskOptions {
  /** Default: the name that the file exports the task by. */
  name?: string;
  /** `LOW`, `MEDIUM` (default), `HIGH`, or a number of units of fuel. */
  compute?: "LOW" | "MEDIUM" | "HIGH" | (string & {}) | number;
  /** Memory, as in `512MB`, or bytes. Default: what 32-bit WebAssembly can have. */
  ram?: string | number;
  /** As in `500ms`, `30s`, `5m`, `1h`; a number is of milliseconds. Default: none. */
  timeout?: string | number;
  /** How many more tries a failure gets. Default: 0. */
  maxRetries?: number;
  /** Folders below the working folder, as in `./data` or `./data:ro`. Default: none. */
  allowedFiles?: readonly (string | AllowedFile)[];
  /** Hosts that it may send requests to. Default: none. */
  allowedHosts?: readonly string[];
  /** Names of the environment variables that it gets. Default: none. */
  envVariables?: readonly string[];
}

/** Why a task failed. */
export interface TaskError {
  error_type:
    | "task_error"
    | "timeout"
    | "fuel_exhausted"
    | "memory_exceeded"
    | "permission_denied"
    | "wasm_error"
    | "config_error";
  message: string;
}

/** A request that a task made. */
export interface HostRequest {
  method: string;
  url: string;
  /** `null`: there was no answer. */
  status: number | null;
}

/** What became of a task. */
export interface Envelope<Result> {
  success: boolean;
  /** `null` where it failed. */
  result: Result;
  error: TaskError | null;
  execution: {
    task_name: string;
    duration_ms: number;
    retries: number;
    fuel_consumed: number;
    ram_used: number;
    host_requests: HostRequest[];
  };
}

/**
 * Mark a function as a task.
 *
 * In a sandbox, a call of the result runs the task in an instance of its own, to its end, and returns its
 * envelope. Elsewhere it runs the function where it is, and returns an envelope all the same.
 */
export function task<Args extends unknown[], Result>(
  options: TaskOptions,
  run: (...args: Args) => Promise<Result>,
): (...args: Args) => Promise<Envelope<Result>>;
export function task<Args extends unknown[], Result>(
  options: TaskOptions,
  run: (...args: Args) => Result,
): (...args: Args) => Envelope<Result>;
