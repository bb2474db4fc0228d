/** The page of runs in a test, with a server that answers with made-up runs. */

import { act } from "react";

import { RunsPage } from "../../../src/components/page/runsPage";
import { PAGE } from "../../../src/state/pages";
import type * as wire from "../../../src/wire";
import { example } from "../../examples";
import { Harness } from "../../harness";

export let harness: Harness;
export const table = example<wire.RunTable>("run-table");
export const first = table.runs[0] as wire.RunRow;
export const MANY = 5000;
export const ALL = { text: "", status: "", cluster: "", tag: "" };
export const NEWEST = { column: "started", descending: true };
/** What JupyterLab's state database contains. */
export const kept = new Map<string, unknown>();
const store = {
  fetch: (key: string) => Promise.resolve(kept.get(key)) as Promise<undefined>,
  save: (key: string, value: unknown) => Promise.resolve(kept.set(key, value)),
};

export const detail = example<wire.RunDetail>("run-detail");

const many = Array.from({ length: MANY }, (_, n): wire.RunRow => {
  return { ...first, id: `run-${n}`, name: `name-${n}`, status: "finished", goes_on: false };
});

function page(_: unknown, __: unknown, ___: unknown, offset: number, limit: number): wire.RunTable {
  return { ...table, runs: many.slice(offset, offset + limit), offset, total: MANY };
}

/** Replace the page by a new one, as after a reload. */
export function renew(): void {
  harness = new Harness();
  harness.answers["table"] = page;
}

beforeEach(() => {
  kept.clear();
  renew();
  harness.answers["editRun"] = (_: string, edit: Partial<wire.RunRow>) => ({ ...first, ...edit });
  harness.answers["run"] = () => detail;
});
afterEach(() => harness.close());

export async function open(answer?: () => wire.RunTable): Promise<void> {
  if (answer) harness.answers["table"] = answer;
  await harness.open(true, <RunsPage store={store} />);
  await harness.receive({ kind: "runs", runs: [], total: 0 });
  await answered();
}

/** Let the page receive and render the answers to its requests. */
export async function answered(): Promise<void> {
  for (let n = 0; n < 3; n += 1) await harness.receive();
}

/** Return an answer with runs of these names. */
export const named = (...names: string[]) => {
  const runs = names.map((name) => ({ ...first, id: `id-${name}`, name, goes_on: false }));
  return () => ({ ...table, runs, total: runs.length });
};

export const rows = () => [...harness.root.querySelectorAll<HTMLElement>("tbody tr:not([aria-hidden])")];
export const heads = () => [...harness.root.querySelectorAll("thead th")].map((head) => head.textContent);
export const asked = () => harness.requests.filter((one) => one.startsWith("table"));
export const request = (filter: object, sort: object, offset: number, added: readonly string[] = []) =>
  `table ${[filter, sort, added].map((one) => JSON.stringify(one)).join(" ")} ${offset} ${PAGE}`;

export async function press(element: Element | null, key: string): Promise<void> {
  await act(async () => {
    element?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    await Promise.resolve();
  });
  await answered();
}
