import type { Envelope } from "./index.js";

/** What `run` needs of an `AbortSignal`. */
export interface Signal {
  readonly aborted: boolean;
  readonly reason: any;
  addEventListener(type: "abort", listener: () => void, options?: { once?: boolean }): void;
  removeEventListener(type: "abort", listener: () => void): void;
}

/** What is asked of a packed file's signature, as `[trust]` of `capsule.toml` asks for it. */
export interface Trust {
  /** Who must have signed. */
  identity?: string;
  /** The OIDC issuer that must have vouched for that. */
  issuer?: string;
  /** The key that must have signed, in another's place: a path. */
  publicKey?: string;
  /** Whose certificates and logs count: a path. */
  trustRoot?: string;
  /** The builder that the provenance must name. */
  builder?: string;
  /** Whether a file that was packed for another guest than the one here is refused. */
  sameGuest?: boolean;
}

/** What to run, and how. */
export interface WorkerRunOptions {
  /** A source file, or a packed one (`.wasm`), relative to `cwd`; or a `file:` URL. */
  file: string | { readonly href: string };
  /** The entry task's arguments: what JSON can hold. */
  args?: readonly unknown[];
  /** Its keyword arguments, which only a task in Python has. */
  kwargs?: Readonly<Record<string, unknown>>;
  /** Folders to add for the entry task, as `HOST[::GUEST][:ro|:rw]`. */
  mounts?: readonly string[];
  /** Folders of installed packages, for a file in Python. */
  packages?: readonly string[];
  /** The working folder, which `allowedFiles`, `.env` and `capsule.toml` are relative to. Default: the program's. */
  cwd?: string | { readonly href: string };
  /** Whether nested tasks take their fuel from their caller's. Default: false. */
  sharedCompute?: boolean;
  /** Whether what becomes of the tasks is written into `.capsule/trace.db` of `cwd`. Default: false. */
  trace?: boolean;
  /** Whose signature must be on the file, beside what `capsule.toml` asks for. Default: nobody's. */
  trust?: Trust;
  /** Ends the task; the call is rejected with the signal's reason. */
  signal?: Signal;
  /**
   * Hears what the tasks print, while they run: 1 is standard output, 2 standard error. Without, it goes to the
   * program's standard error. What it throws ends the task, and the call is rejected with that.
   */
  onOutput?: (stream: 1 | 2, text: string) => void;
}

export interface RunOptions extends WorkerRunOptions {
  /**
   * What starts `capsule`: a program, or a list of one and its first words. Default: what the variable
   * `CAPSULE_COMMAND` names, else `capsule`.
   */
  command?: string | readonly string[];
}

/**
 * Run a file's entry task in a sandbox and return its envelope.
 *
 * What goes wrong with the task, or with its file, is in the envelope. The program has one worker process for all
 * its calls: the first starts it, and it ends with the program, which it doesn't keep from ending.
 *
 * @throws WorkerError (as a rejection) where there can be no envelope.
 * @throws TypeError (as a rejection) for an option that doesn't exist.
 */
export function run<Result = unknown>(options: RunOptions): Promise<Envelope<Result>>;

export interface WorkerOptions {
  /** As in `RunOptions`. */
  command?: string | readonly string[];
  /** How many tasks may run at once. Default: 16, or two a processor where that is more. */
  jobs?: number;
  /** The environment that tasks are granted variables of. Default: the program's, as it is when the worker starts. */
  env?: Readonly<Record<string, string | undefined>>;
}

/** A worker process of one's own. The first call starts it, and so does one after it has ended. */
export class Worker {
  constructor(options?: WorkerOptions);
  /** The process's number, where it runs. */
  get pid(): number | undefined;
  run<Result = unknown>(options: WorkerRunOptions): Promise<Envelope<Result>>;
  /** Ends it, when it has answered what it was asked. */
  close(): Promise<void>;
}

/**
 * There is no envelope: the program `capsule` isn't there, the worker or the process that ran the task has ended,
 * or the request isn't one.
 */
export class WorkerError extends Error {}
