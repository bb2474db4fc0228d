/**
 * @jest-environment node
 */

/** Checks the imports between modules, including those of types, and that folders of sources and tests stay small. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import ts from "typescript";

const SOURCES = join(__dirname, "../src");
const MOST_MODULES = 14;
const modulesIn = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => /\.tsx?$/.test(name));
const modules = modulesIn(SOURCES);

/** Return the modules in `src` that a module imports. */
function importsOf(name: string): string[] {
  const { importedFiles } = ts.preProcessFile(readFileSync(join(SOURCES, name), "utf8"));
  const own = importedFiles.map(({ fileName }) => fileName).filter((file) => file.startsWith("."));
  return own.map((file) => {
    const path = relative(SOURCES, join(SOURCES, dirname(name), file));
    return [`${path}.ts`, `${path}.tsx`].find((one) => existsSync(join(SOURCES, one))) ?? path;
  });
}

/** Return a cycle of imports that can be reached from the last module of `path`, or null if there is none. */
function circle(path: string[], finished: Set<string>): string[] | null {
  const last = path.at(-1) ?? "";
  if (path.indexOf(last) < path.length - 1) return path;
  if (finished.has(last)) return null;
  for (const name of importsOf(last)) {
    const found = circle([...path, name], finished);
    if (found) return found;
  }
  finished.add(last);
  return null;
}

test("there is no circle of imports", () => {
  const finished = new Set<string>();
  expect(modules.map((name) => circle([name], finished)).filter(Boolean)).toEqual([]);
  expect(finished.size).toBeGreaterThan(40);
});

test.each<[string, string[]]>([
  ["src", modules],
  ["test", modulesIn(__dirname)],
])("no folder in %s has many modules", (_, names) => {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(dirname(name), (counts.get(dirname(name)) ?? 0) + 1);
  expect([...counts].filter(([, count]) => count > MOST_MODULES)).toEqual([]);
});

test("the state and the network do not import components", () => {
  const lower = modules.filter((name) => /^(net|state|charts|notebooks)\//.test(name));
  const upwards = lower.flatMap((name) => importsOf(name).filter((one) => /^(components|plugins)\//.test(one)));
  expect(upwards).toEqual([]);
});
