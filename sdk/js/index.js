// Outside of a sandbox. In one, the guest has a module of its own by this name.

export { Worker, WorkerError, run } from "./runner.js";

/** Mark a function as a task. See index.d.ts. */
export function task(options, run) {
  if (typeof run !== "function") throw new TypeError("task(options, function): there is no function");
  const name = options.name ?? run.name ?? "task";
  return (...args) => {
    const begin = Date.now();
    try {
      const result = run(...args);
      if (typeof result?.then !== "function") return envelope(name, begin, result, null);
      return result.then(
        (value) => envelope(name, begin, value, null),
        (error) => envelope(name, begin, null, error),
      );
    } catch (error) {
      return envelope(name, begin, null, error);
    }
  };
}

function envelope(name, begin, result, error) {
  return {
    success: error === null,
    result: result ?? null,
    error: error === null ? null : { error_type: "task_error", message: String(error) },
    execution: {
      task_name: name,
      duration_ms: Date.now() - begin,
      retries: 0,
      fuel_consumed: 0,
      ram_used: 0,
      host_requests: [],
    },
  };
}
