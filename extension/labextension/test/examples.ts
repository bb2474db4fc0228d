/** The examples of `tests/wire`, which the tests in Python read as well. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

export const WIRE = join(__dirname, "../../../tests/wire");

export function text(path: string): string {
  return readFileSync(join(WIRE, path), "utf8");
}

/** Return an example by the name of its file; `types.json` maps files to types. */
// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters -- JSON.parse returns any
export function example<T>(name: string): T {
  return JSON.parse(text(`${name}.json`)) as T;
}
