// The text of a run of a session, rewritten: what it declares at its top becomes properties of the global object,
// which outlive it. Lines stay where they are.

import { getLineInfo, parse } from "acorn";
import { bound, freeTargets } from "./scope.mjs";

/** By which name a rewritten text finds what stands for syntax that can't be kept (see `session.mjs`). */
export const HELPER = "__capsule";

const OPTIONS = {
  ecmaVersion: "latest",
  allowAwaitOutsideFunction: true,
  allowImportExportEverywhere: true,
  allowReturnOutsideFunction: true,
};
const NO_RETURN = "'return' outside of a function: a run gives the value of its last expression";
const NO_EXPORT = "'export' of something else than a declaration: nobody imports a run";

/** Return the tree of a text, and the text that it is of: one that can only be an object is one, as in Node's REPL. */
function read(code) {
  if (/^\s*\{[^]*\}\s*$/.test(code)) {
    try {
      const text = `(${code})`;
      return [parse(text, OPTIONS), text];
    } catch {
      // It is a block.
    }
  }
  return [parse(code, OPTIONS), code];
}

/**
 * Rewrite a text.
 *
 * @param {string} code
 * @param {Set<string>} constants What runs before it have declared as constant.
 * @returns `first`, which declares the functions; `main`, which does the rest and gives the value of its last
 *   expression in an array, so that nothing waits for it; and the names that it declares, by kind: `variables`, `lexical`, `functions`, `constants`.
 * @throws SyntaxError with `line`.
 */
export function rewrite(code, constants) {
  try {
    const [tree, text] = read(code);
    return new Rewriter(tree, text).rewrite(constants);
  } catch (error) {
    if (error.loc === undefined) throw error;
    const wrong = new SyntaxError(error.message.replace(/ \(\d+:\d+\)$/, ""));
    throw Object.assign(wrong, { line: error.loc.line });
  }
}

class Rewriter {
  constructor(tree, text) {
    this.tree = tree;
    this.text = text;
    this.edits = [];
    this.firstEdits = [];
    this.functions = [];
    this.names = { variables: [], lexical: [], constants: [] };
  }

  rewrite(constants) {
    const { body } = this.tree;
    this.strict = body.some((node) => node.directive === "use strict");
    body.forEach((node, at) => this.#top(node, at === body.length - 1));
    this.#imports(this.tree);
    this.#assignments(constants);
    const main = this.#apply(this.edits, 0, this.text.length);
    const first = this.functions.length > 0 ? this.#first() : null;
    return { first, main, strict: this.strict, functions: this.functions.map((node) => node.id.name), ...this.names };
  }

  #edit(start, end, text) {
    // Its lines are counted by those that stand behind it.
    const lines = this.text.slice(start, end).replace(/[^\n]/g, "");
    this.edits.push({ start, end, text: text + lines });
  }

  #problem(node, message) {
    throw Object.assign(new SyntaxError(message), { loc: getLineInfo(this.text, node.start) });
  }

  #top(node, last) {
    switch (node.type) {
      case "ImportDeclaration":
        return this.#import(node);
      case "ExportNamedDeclaration":
      case "ExportDefaultDeclaration":
        if (node.declaration?.id == null && node.declaration?.declarations == null) this.#problem(node, NO_EXPORT);
        this.#edit(node.start, node.declaration.start, "");
        return this.#top(node.declaration, false);
      case "ExportAllDeclaration":
        return this.#problem(node, NO_EXPORT);
      case "FunctionDeclaration":
        this.functions.push(node);
        return this.#edit(node.start, node.end, ";");
      case "ClassDeclaration":
        this.names.lexical.push(node.id.name);
        this.#edit(node.start, node.start, `;${node.id.name} = `);
        return this.#edit(node.end, node.end, ";");
      case "VariableDeclaration":
        return this.#variables(node, true);
      case "ExpressionStatement":
        return last ? this.#value(node) : undefined;
      default:
        return this.#nested(node);
    }
  }

  #import(node) {
    const imported = (one) => {
      if (one.type === "ImportNamespaceSpecifier") return "*";
      return one.type === "ImportDefaultSpecifier" ? "default" : (one.imported.name ?? one.imported.value);
    };
    const locals = node.specifiers.map((one) => one.local.name);
    this.names.lexical.push(...locals);
    this.names.constants.push(...locals);
    const names = JSON.stringify(node.specifiers.map(imported));
    this.#edit(node.start, node.end, `;[${locals}] = ${HELPER}.take(${JSON.stringify(node.source.value)}, ${names});`);
  }

  #value(node) {
    const closed = this.text[node.end - 1] === ";" ? node.end - 1 : node.end;
    this.#edit(node.start, node.start, ";return [(");
    this.#edit(closed, node.end, ")];");
  }

  /** Make a declaration an assignment. `listed`: whether it stands in a list of statements. */
  #variables(node, listed) {
    if (node.kind !== "var" && node.kind !== "let" && node.kind !== "const") return;
    const names = node.declarations.flatMap((one) => [...bound(one.id)]);
    this.names[node.kind === "var" ? "variables" : "lexical"].push(...names);
    if (node.kind === "const") this.names.constants.push(...names);
    this.#edit(node.start, node.start + node.kind.length, listed ? ";(" : "(");
    if (node.kind === "let") {
      for (const one of node.declarations) if (one.init === null) this.#edit(one.end, one.end, " = void 0");
    }
    const closed = this.text[node.end - 1] === ";" ? node.end - 1 : node.end;
    this.#edit(closed, node.end, ");");
  }

  /** Make the `var`s within a statement assignments; a `return` in it is an error. */
  #nested(node, listed = false) {
    if (node === null || typeof node !== "object") return;
    if (Array.isArray(node)) return node.forEach((one) => this.#nested(one, true));
    if (node.type === "ReturnStatement") this.#problem(node, NO_RETURN);
    if (/^(Class|.*Function)|Expression$/.test(node.type ?? "")) return;
    if (node.type === "VariableDeclaration") {
      if (node.kind === "var") this.#variables(node, listed);
      return;
    }
    if (/^For/.test(node.type ?? "")) {
      const head = node.init ?? node.left;
      if (head?.type === "VariableDeclaration" && head.kind === "var") {
        this.names.variables.push(...head.declarations.flatMap((one) => [...bound(one.id)]));
        this.#edit(head.start, head.start + 3, "");
      }
      return this.#nested(node.body);
    }
    for (const value of Object.values(node)) this.#nested(value);
  }

  /** `import(...)` is syntax that only knows the modules of the guest's own making. */
  #imports(node) {
    if (node === null || typeof node !== "object") return;
    if (Array.isArray(node)) return node.forEach((one) => this.#imports(one));
    if (node.type === "ImportExpression") this.#edit(node.start, node.start + "import".length, `${HELPER}.import`);
    for (const value of Object.values(node)) if (typeof value === "object") this.#imports(value);
  }

  /** An assignment to a constant is an error when it is done, and not before. */
  #assignments(known) {
    const { variables, lexical, constants } = this.names;
    const changeable = new Set([...variables, ...lexical, ...this.functions.map((node) => node.id.name)]);
    for (const name of constants) changeable.delete(name);
    const fixed = new Set([...[...known].filter((name) => !changeable.has(name)), ...constants]);
    if (fixed.size === 0) return;
    for (const { node, shorthand } of freeTargets(this.tree, fixed)) {
      this.#edit(node.start, node.start, `${shorthand ? `${node.name}: ` : ""}${HELPER}.constant.`);
    }
  }

  /** The functions alone, where they stand: they are there before all else is done. */
  #first() {
    let at = 0;
    let text = this.strict ? '"use strict";' : "";
    for (const node of this.functions) {
      const own = this.edits.filter((edit) => edit.start >= node.start && edit.end <= node.end && edit.start !== node.start);
      const [before, after] = this.strict ? [`${node.id.name} = `, ";"] : ["", ""];
      text += this.text.slice(at, node.start).replace(/[^\n]/g, "") + before + this.#apply(own, node.start, node.end) + after;
      at = node.end;
    }
    return text;
  }

  #apply(edits, start, end) {
    let at = start;
    let text = "";
    // Of two at one place the one that was made first stands first; what lies within another is gone with it.
    for (const edit of [...edits].sort((a, b) => a.start - b.start)) {
      if (edit.start < at) continue;
      text += this.text.slice(at, edit.start) + edit.text;
      at = edit.end;
    }
    return text + this.text.slice(at, end);
  }
}
