/**
 * @jest-environment node
 */

/** The types of this page, those of the server, and the examples of both say the same. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";

import { example, text } from "./examples";

const SOURCE = join(__dirname, "../src/wire.ts");
const PYTHON = join(__dirname, "../../farandole/server/panel/wire.py");
const OPTIONS: ts.CompilerOptions = { strict: true, noEmit: true, skipLibCheck: true, target: ts.ScriptTarget.ES2023 };

/** Return what the compiler has to say about one module beside `wire.ts`. */
function faults(code: string): string[] {
  const path = join(__dirname, "../src/example.ts");
  const host = ts.createCompilerHost(OPTIONS);
  const read = host.getSourceFile.bind(host);
  host.getSourceFile = (name, ...rest) =>
    name === path ? ts.createSourceFile(name, code, ts.ScriptTarget.ES2023) : read(name, ...rest);
  const program = ts.createProgram([path], OPTIONS, host);
  return ts.getPreEmitDiagnostics(program).map((one) => ts.flattenDiagnosticMessageText(one.messageText, "\n"));
}

/** Return the keys of each interface in `wire.ts`. */
function keysHere(): Record<string, string[]> {
  const source = ts.createSourceFile(SOURCE, readFileSync(SOURCE, "utf8"), ts.ScriptTarget.ES2023);
  const found: Record<string, string[]> = {};
  source.forEachChild((node) => {
    if (!ts.isInterfaceDeclaration(node)) return;
    found[node.name.text] = node.members.map((member) => (member.name as ts.Identifier).text).sort();
  });
  return found;
}

/** Return the keys of each `TypedDict` in `wire.py`. */
function keysThere(): Record<string, string[]> {
  const found: Record<string, string[]> = {};
  let keys: string[] = [];
  for (const line of readFileSync(PYTHON, "utf8").split("\n")) {
    const name = /^class (\w+)\(TypedDict\):/.exec(line)?.[1];
    if (name) found[name] = keys = [];
    const key = /^ {4}(\w+): /.exec(line)?.[1];
    if (key) keys.push(key);
  }
  return Object.fromEntries(Object.entries(found).map(([name, keys]) => [name, keys.sort()]));
}

const types = example<Record<string, string>>("types");
const declare = ([name, type]: [string, string]) =>
  `const ${name.replace(/-/g, "_")}: wire.${type} = ${text(`${name}.json`)};`;
const IMPORT = 'import type * as wire from "./wire";\n';

test("every example is of its type: no key is missing and none is unknown", () => {
  expect(faults(IMPORT + Object.entries(types).map(declare).join("\n"))).toEqual([]);
});

test("a missing key and an unknown one are found", () => {
  expect(faults(`${IMPORT}const beat: wire.Beat = { kind: "beat" };`).join()).toContain("'time' is missing");
  expect(faults(`${IMPORT}const beat: wire.Beat = { kind: "beat", time: 1, more: 2 };`).join()).toContain("'more'");
});

test("both languages have the same types with the same keys", () => {
  const there = keysThere();
  expect(Object.keys(there).length).toBeGreaterThan(30);
  expect(keysHere()).toEqual(there);
});

test("every message that the server may send has an example", () => {
  const kinds = new Set(Object.values(types));
  const messages = Object.keys(keysHere()).filter((name) => name.endsWith("Message") || name === "Beat");
  expect(messages.filter((name) => !kinds.has(name))).toEqual([]);
});
