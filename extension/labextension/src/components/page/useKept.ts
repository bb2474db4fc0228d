/** Keeps the columns, the filters and the order of the table in JupyterLab's state database. */

import type { IStateDB } from "@jupyterlab/statedb";
import { useCallback, useEffect, useState } from "react";

import { ALL_RUNS, NEWEST, STATUSES, type Sort, type TableFilter } from "../../net/filters";
import type { Choices } from "./columns";

/** What the user has chosen in the table. */
export interface Kept {
  readonly columns: Choices;
  readonly filter: TableFilter;
  readonly sort: Sort;
}

/** The methods of JupyterLab's state database that the page uses. */
export type Store = Pick<IStateDB, "fetch" | "save">;

const FIRST: Kept = { columns: {}, filter: ALL_RUNS, sort: NEWEST };
const SORTED = /^(name|status|started|seconds|size|cluster|bytes|config\..+|series\..+\.(last|lowest|highest))$/s;

/** Return what was chosen last time, or null until it is read, and a function that changes parts of it. */
export function useKept(store: Store | null): [Kept | null, (part: Partial<Kept>) => void] {
  const [kept, setKept] = useState<Kept | null>(store ? null : FIRST);
  useEffect(() => {
    let mounted = true;
    if (store) void fetched(store).then((found) => mounted && setKept(found));
    return () => {
      mounted = false;
    };
  }, [store]);
  const keep = useCallback(
    (part: Partial<Kept>) => {
      setKept((before) => ({ ...(before ?? FIRST), ...part }));
      Object.entries(part).forEach(([name, value]) => void store?.save(keyOf(name), { ...value }));
    },
    [store],
  );
  return [kept, keep];
}

function keyOf(name: string): string {
  return `farandole:${name}`;
}

/** Return the kept values. Those that are missing or of another form are the first ones. */
async function fetched(store: Store): Promise<Kept> {
  const read = (name: keyof Kept): Promise<unknown> => store.fetch(keyOf(name)).catch(() => undefined);
  const [columns, filter, sort] = await Promise.all([read("columns"), read("filter"), read("sort")]);
  return { columns: columnsIn(columns), filter: filterIn(filter), sort: sortIn(sort) };
}

function entriesOf(kept: unknown): [string, unknown][] {
  return kept && typeof kept === "object" ? Object.entries(kept) : [];
}

function columnsIn(kept: unknown): Choices {
  return Object.fromEntries(
    entriesOf(kept).filter((entry): entry is [string, boolean] => typeof entry[1] === "boolean"),
  );
}

function filterIn(kept: unknown): TableFilter {
  const texts = new Map(entriesOf(kept).filter((entry): entry is [string, string] => typeof entry[1] === "string"));
  return {
    text: texts.get("text") ?? "",
    status: STATUSES.find((status) => status === texts.get("status")) ?? "",
    cluster: texts.get("cluster") ?? "",
    tag: texts.get("tag") ?? "",
  };
}

function sortIn(kept: unknown): Sort {
  const { column, descending } = Object.fromEntries(entriesOf(kept));
  const valid = typeof column === "string" && SORTED.test(column) && typeof descending === "boolean";
  return valid ? { column, descending } : NEWEST;
}
