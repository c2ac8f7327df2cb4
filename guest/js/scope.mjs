// Which names a text gives a value that it doesn't declare within: only looked for where a constant's name is among
// what is assigned.

/** The names that a pattern declares. */
export function* bound(pattern) {
  switch (pattern?.type) {
    case "Identifier":
      yield pattern.name;
      break;
    case "ObjectPattern":
      for (const one of pattern.properties) yield* bound(one.type === "Property" ? one.value : one.argument);
      break;
    case "ArrayPattern":
      for (const one of pattern.elements) yield* bound(one);
      break;
    case "AssignmentPattern":
      yield* bound(pattern.left);
      break;
    case "RestElement":
      yield* bound(pattern.argument);
      break;
  }
}

/** Yield the identifiers that are assigned, are among `names`, and mean what is declared at the text's top. */
export function freeTargets(tree, names) {
  const found = [];
  visit(tree, []);
  return found;

  function visit(node, scopes) {
    if (node === null || typeof node !== "object") return;
    if (Array.isArray(node)) return node.forEach((one) => visit(one, scopes));
    const own = node.type === "Program" ? null : declared(node);
    const inner = own === null ? scopes : [...scopes, own];
    if (node.type === "AssignmentExpression") target(node.left, inner);
    else if (node.type === "UpdateExpression") target(node.argument, inner);
    else if (/^For(In|Of)Statement$/.test(node.type) && node.left.type !== "VariableDeclaration") target(node.left, inner);
    for (const value of Object.values(node)) if (typeof value === "object") visit(value, inner);
  }

  function target(node, scopes, shorthand = false) {
    switch (node?.type) {
      case "Identifier":
        if (names.has(node.name) && !scopes.some((scope) => scope.has(node.name))) found.push({ node, shorthand });
        break;
      case "ObjectPattern":
        for (const one of node.properties) target(one.value ?? one.argument, scopes, Boolean(one.shorthand));
        break;
      case "ArrayPattern":
        for (const one of node.elements) target(one, scopes);
        break;
      case "AssignmentPattern":
        target(node.left, scopes, shorthand);
        break;
      case "RestElement":
        target(node.argument, scopes);
        break;
    }
  }
}

/** The names that a node declares for what lies within it; `null`: it is no scope. */
function declared(node) {
  switch (node.type) {
    case "FunctionDeclaration":
    case "FunctionExpression":
    case "ArrowFunctionExpression": {
      const names = new Set(node.params.flatMap((one) => [...bound(one)]));
      if (node.type === "FunctionExpression" && node.id) names.add(node.id.name);
      hoisted(node.body, names);
      return names;
    }
    case "ClassExpression":
    case "ClassDeclaration":
      return new Set(node.id ? [node.id.name] : []);
    case "StaticBlock":
    case "BlockStatement":
      return lexical(node.body);
    case "SwitchStatement":
      return lexical(node.cases.flatMap((one) => one.consequent));
    case "ForStatement":
    case "ForInStatement":
    case "ForOfStatement":
      return lexical([node.init ?? node.left]);
    case "CatchClause":
      return new Set(bound(node.param));
    default:
      return null;
  }
}

function lexical(statements) {
  const names = new Set();
  for (const one of statements) {
    if (one?.type === "VariableDeclaration" && one.kind !== "var") {
      for (const declarator of one.declarations) for (const name of bound(declarator.id)) names.add(name);
    } else if (one?.type === "FunctionDeclaration" || one?.type === "ClassDeclaration") {
      names.add(one.id.name);
    }
  }
  return names;
}

/** Add the `var`s of a function's body. */
function hoisted(node, names) {
  if (node === null || typeof node !== "object") return;
  if (Array.isArray(node)) return node.forEach((one) => hoisted(one, names));
  if (/Function|^Class|Expression$/.test(node.type ?? "")) return;
  if (node.type === "VariableDeclaration" && node.kind === "var") {
    for (const one of node.declarations) for (const name of bound(one.id)) names.add(name);
  }
  for (const value of Object.values(node)) if (typeof value === "object") hoisted(value, names);
}
