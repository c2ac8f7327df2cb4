// What a file says of its tasks, read from its syntax: no line of it is run for that.
//
// What is read is the file with its own modules in one, as ES module, types taken away, packages left outside.

import { parse } from "acorn";
import { SourceMap } from "./map.mjs";

const SDK = ["@capsule-build/sdk", "@capsule-run/sdk"];
const OPTIONS = {
  name: "name",
  compute: "compute",
  ram: "ram",
  timeout: "timeout",
  maxRetries: "max_retries",
  allowedFiles: "allowed_files",
  allowedHosts: "allowed_hosts",
  envVariables: "env_variables",
};
const MAX_SPREAD = 100;

/** The file says something of a task that the host can't know before it is run. */
class Problem extends Error {}

/** Return `{tasks, functions}`, or `{problem}`: the options as the file has them, by the names that the host has. */
export function describe(source, path, map) {
  const lines = new SourceMap(map);
  const where = (node) => lines.place(node.loc.start.line, node.loc.start.column) ?? path;
  try {
    const tree = parse(source, { ecmaVersion: "latest", sourceType: "module", locations: true });
    return new Reader(tree, where).read();
  } catch (error) {
    if (error instanceof Problem) return { problem: error.message };
    if (error instanceof SyntaxError) return { problem: `${path}: ${error.name}: ${error.message}` };
    throw error;
  }
}

class Reader {
  constructor(tree, where) {
    this.tree = tree;
    this.where = where;
    this.words = new Set();
    this.spaces = new Set();
    this.exports = new Map();
    this.values = new Map();
    this.written = new Map();
  }

  read() {
    for (const node of this.tree.body) this.#header(node);
    this.#constants(this.tree);
    const tasks = [];
    for (const node of this.tree.body) this.#find(node, undefined, tasks);
    const functions = this.tree.body
      .filter((node) => node.type === "FunctionDeclaration")
      .map((node) => this.exports.get(node.id.name))
      .filter(Boolean);
    for (const [local, name] of this.exports) {
      const value = this.values.get(local);
      if (value !== undefined && /^(Arrow)?FunctionExpression$/.test(value.type)) functions.push(name);
    }
    // A default export is `main` where nothing else is.
    const names = functions.includes("main") ? functions : functions.map((name) => (name === "default" ? "main" : name));
    return { tasks, functions: [...new Set(names)] };
  }

  #header(node) {
    if (node.type === "ImportDeclaration" && SDK.includes(node.source.value)) {
      for (const one of node.specifiers) {
        if (one.type === "ImportNamespaceSpecifier") this.spaces.add(one.local.name);
        else if (one.type === "ImportSpecifier" && one.imported.name === "task") this.words.add(one.local.name);
      }
    } else if (node.type === "ExportNamedDeclaration") {
      for (const one of node.specifiers) this.exports.set(one.local.name, one.exported.name);
    }
  }

  /** Note what each name is given, and how often: a name that is given one value means it everywhere. */
  #constants(node) {
    if (Array.isArray(node)) return node.forEach((one) => this.#constants(one));
    if (typeof node?.type !== "string" || node.type === "ExportNamedDeclaration") return undefined;
    if (node.type === "VariableDeclarator" && node.id.type === "Identifier") {
      this.#note(node.id.name, node.init);
    } else if (node.type === "AssignmentExpression" || node.type === "UpdateExpression") {
      this.#changed(node.left ?? node.argument);
    } else {
      // All else that gives a name a meaning, which nobody knows before it is run.
      for (const one of [node.id, node.param, node.local, ...(node.params ?? [])]) if (one) this.#changed(one);
    }
    for (const value of Object.values(node)) if (typeof value === "object") this.#constants(value);
    return undefined;
  }

  #note(name, value) {
    this.written.set(name, (this.written.get(name) ?? 0) + 1);
    if (value) this.values.set(name, value);
  }

  #changed(target) {
    if (target.type === "Identifier") this.#note(target.name, undefined);
    else if (target.type === "MemberExpression") this.#changed(target.object);
    else for (const inner of Object.values(target)) this.#each(inner, (one) => this.#changed(one));
  }

  #each(value, act) {
    if (Array.isArray(value)) value.forEach((one) => this.#each(one, act));
    else if (typeof value?.type === "string") act(value.type === "Property" ? value.value : value);
  }

  /** Find the calls of `task` that the module itself makes: not those within its functions. */
  #find(node, name, tasks) {
    if (node.type === "CallExpression" && this.#means(node.callee)) {
      tasks.push(this.#task(node, name));
      return;
    }
    if (/Function|^Class|^Import/.test(node.type)) return;
    const named = node.type === "VariableDeclarator" && node.id.type === "Identifier" ? node.id.name : undefined;
    for (const value of Object.values(node)) this.#each(value, (one) => this.#find(one, named, tasks));
  }

  #means(callee) {
    if (callee.type === "Identifier") return this.words.has(callee.name);
    return (
      callee.type === "MemberExpression" &&
      !callee.computed &&
      callee.property.name === "task" &&
      callee.object.type === "Identifier" &&
      this.spaces.has(callee.object.name)
    );
  }

  #task(node, local) {
    const [first] = node.arguments;
    if (first === undefined || first.type === "SpreadElement") {
      throw new Problem(`${this.where(node)}: task(options, function): the options must be written out.`);
    }
    const given = this.#value(first, "the options", node, 0);
    if (typeof given !== "object" || given === null || Array.isArray(given)) {
      throw new Problem(`${this.where(node)}: task(options, function): the options must be an object.`);
    }
    const options = {};
    for (const [key, value] of Object.entries(given)) {
      if (!Object.hasOwn(OPTIONS, key)) {
        const known = Object.keys(OPTIONS).join(", ");
        throw new Problem(`${this.where(node)}: task has no option '${key}'; it has ${known}.`);
      }
      if (value !== null && value !== undefined) options[OPTIONS[key]] = value;
    }
    if (typeof options.timeout === "number") options.timeout = `${options.timeout}ms`;
    const exported = this.exports.get(local);
    const { name = exported, ...rest } = options;
    if (name === undefined) {
      throw new Problem(`${this.where(node)}: a task that isn't exported needs a name: task({ name: "...", ... }, ...).`);
    }
    return { name, function: exported ?? String(name), line: 0, where: this.where(node), options: rest };
  }

  /** Return what an expression is, if that can be read from it. */
  #value(node, what, call, depth) {
    const read = (inner, name = what) => this.#value(inner, name, call, depth + 1);
    if (depth < MAX_SPREAD) {
      switch (node.type) {
        case "Literal":
          if (node.regex === undefined && node.bigint === undefined) return node.value;
          break;
        case "TemplateLiteral":
          return node.quasis.map((part, at) => part.value.cooked + (node.expressions[at] ? read(node.expressions[at]) : "")).join("");
        case "UnaryExpression":
          if (node.operator === "-") return -read(node.argument);
          if (node.operator === "!") return !read(node.argument);
          if (node.operator === "void") return undefined;
          break;
        case "BinaryExpression": {
          const [a, b] = [read(node.left), read(node.right)];
          if (typeof a === "object" || typeof b === "object") break;
          if (node.operator === "+") return a + b;
          if (node.operator === "-") return a - b;
          if (node.operator === "*") return a * b;
          if (node.operator === "/") return a / b;
          if (node.operator === "**") return a ** b;
          break;
        }
        case "ArrayExpression":
          return node.elements.flatMap((one) => {
            if (one?.type !== "SpreadElement") return [one === null ? null : read(one)];
            return this.#spread(read(one.argument), Array.isArray, what, node, call);
          });
        case "ObjectExpression":
          return this.#object(node, what, call, read);
        case "Identifier":
          if (node.name === "undefined") return undefined;
          if (this.written.get(node.name) === 1 && this.values.has(node.name)) return read(this.values.get(node.name));
          break;
        case "MemberExpression": {
          const object = node.computed ? null : read(node.object);
          if (object !== null && typeof object === "object" && Object.hasOwn(object, node.property.name)) {
            return object[node.property.name];
          }
          break;
        }
      }
    }
    throw new Problem(
      `${this.where(node)}: ${what} of task must be a literal, or a name that the module gives a literal value once: ` +
        "the host reads it without running the file.",
    );
  }

  #object(node, what, call, read) {
    const found = {};
    for (const one of node.properties) {
      if (one.type === "SpreadElement") {
        Object.assign(found, this.#spread(read(one.argument), (value) => typeof value === "object", what, node, call));
        continue;
      }
      const key = one.computed || one.method || one.kind !== "init" ? undefined : (one.key.name ?? one.key.value);
      if (key === undefined || key === "__proto__") {
        throw new Problem(`${this.where(one)}: ${what} of task must be written out, with plain names.`);
      }
      found[key] = read(one.value, `'${key}'`);
    }
    return found;
  }

  #spread(value, fits, what, node, call) {
    if (value === null || value === undefined || fits(value)) return value ?? [];
    throw new Problem(`${this.where(node ?? call)}: ${what} of task must be written out.`);
  }
}
