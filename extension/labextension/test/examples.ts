/** Reads the example messages in `tests/wire`, which the Python tests read as well. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

import type { Hub } from "../src/wire";

export const WIRE = join(__dirname, "../../../tests/wire");

/** A hub that answers and has no notices. */
export const HUB: Hub = { user: "ada", error: null, notices: [] };

export function text(path: string): string {
  return readFileSync(join(WIRE, path), "utf8");
}

/** Return the example in the file with this name. `types.json` names the type of each example. */
// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters -- JSON.parse returns any
export function example<T>(name: string): T {
  return JSON.parse(text(`${name}.json`)) as T;
}
