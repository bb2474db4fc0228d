/**
 * @jest-environment node
 */

/** Checks that the types in TypeScript, the types in Python and the example messages agree. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";

import { example, text } from "./examples";

const SOURCE = join(__dirname, "../src/wire.ts");
const PYTHON = ["wire_hub.py", "wire.py", "wire_routes.py"].map((name) =>
  join(__dirname, "../../farandole/server/panel", name),
);
const OPTIONS: ts.CompilerOptions = { strict: true, noEmit: true, skipLibCheck: true, target: ts.ScriptTarget.ES2023 };

/** Compile a module as if it were beside `wire.ts`, and return the compiler's error messages. */
function faults(code: string): string[] {
  const path = join(__dirname, "../src/example.ts");
  const host = ts.createCompilerHost(OPTIONS);
  const read = host.getSourceFile.bind(host);
  host.getSourceFile = (name, ...rest) =>
    name === path ? ts.createSourceFile(name, code, ts.ScriptTarget.ES2023) : read(name, ...rest);
  const program = ts.createProgram([path], OPTIONS, host);
  return ts.getPreEmitDiagnostics(program).map((one) => ts.flattenDiagnosticMessageText(one.messageText, "\n"));
}

type Types = Record<string, Record<string, string> | string>;

/** Return the types in `wire.ts` by name: for an interface, the type of each key, and for an alias, its definition. */
function typesHere(): Types {
  const source = ts.createSourceFile(SOURCE, readFileSync(SOURCE, "utf8"), ts.ScriptTarget.ES2023);
  const words = (node: ts.Node | undefined) => node?.getText(source).replace(/\s+/g, " ").replace(/^\| /, "") ?? "";
  const found: Types = {};
  source.forEachChild((node) => {
    if (ts.isTypeAliasDeclaration(node)) found[node.name.text] = words(node.type);
    if (!ts.isInterfaceDeclaration(node)) return;
    const members = node.members.filter(ts.isPropertySignature);
    const bases = node.heritageClauses?.map((clause) => ["base", clause.types.map(words).join()]) ?? [];
    const keys = members.map((one) => [words(one.name), words(one.type)]);
    found[node.name.text] = Object.fromEntries([...bases, ...keys]) as Record<string, string>;
  });
  return found;
}

/** Return the types in the modules of Python in the same form as `typesHere`, translated to the syntax of TypeScript. */
function typesThere(): Types {
  const found: Types = {};
  let keys: Record<string, string> = {};
  const source = PYTHON.map((path) => readFileSync(path, "utf8"))
    .join("\n")
    .replace(/\[\n +([^\]]*)\n\]/g, "[$1]")
    .replace(/\(\n +([^)]*)\n\)/g, "$1");
  for (const line of source.split("\n")) {
    const [, name, base] = /^class (\w+)\((\w+)\):/.exec(line) ?? [];
    if (name) found[name] = keys = base && base !== "TypedDict" ? { base } : {};
    const [, alias, meant] = /^(\w+): TypeAlias = (.+)/.exec(line) ?? [];
    if (alias && meant) found[alias] = translated(meant);
    const [, key, type] = /^ {4}(\w+): (.+)/.exec(line) ?? [];
    if (key && type) keys[key] = translated(type);
  }
  return found;
}

function translated(type: string): string {
  return type
    .replace(/\bstr\b/g, "string")
    .replace(/\b(int|float)\b/g, "number")
    .replace(/\bbool\b/g, "boolean")
    .replace(/\bNone\b/g, "null")
    .replace(/\bAny\b/g, "unknown")
    .replace(/dict\[([^\]]+)\]/g, "Record<$1>")
    .replace(/Literal\[([^\]]+)\]/g, (_, values: string) => values.split(", ").join(" | "))
    .replace(/list\[([^\]]+)\]/g, (_, item: string) => (item.includes("|") ? `(${item})[]` : `${item}[]`));
}

const types = example<Record<string, string>>("types");
const declare = ([name, type]: [string, string]) =>
  `const ${name.replace(/-/g, "_")}: wire.${type} = ${text(`${name}.json`)};`;
const IMPORT = 'import type * as wire from "./wire";\n';

test("every example has its type: no key is missing and none is unknown", () => {
  expect(faults(IMPORT + Object.entries(types).map(declare).join("\n"))).toEqual([]);
});

test("a missing key and an unknown one are found", () => {
  expect(faults(`${IMPORT}const beat: wire.Beat = { kind: "beat" };`).join()).toContain("'time' is missing");
  expect(faults(`${IMPORT}const beat: wire.Beat = { kind: "beat", time: 1, more: 2 };`).join()).toContain("'more'");
});

test("both languages have the same types, with the same keys, values and nulls", () => {
  const there = typesThere();
  expect(Object.keys(there).length).toBeGreaterThan(35);
  expect(typesHere()).toEqual(there);
});

test("every message that the server may send has an example", () => {
  const kinds = new Set(Object.values(types));
  const messages = Object.keys(typesHere()).filter((name) => /.Message$|^Beat$/.test(name));
  expect(messages.filter((name) => !kinds.has(name))).toEqual([]);
});
