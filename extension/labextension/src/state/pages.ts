/** The pages of the list of runs, as far as they have been fetched from the server. */

import type { RunPage, RunSummary } from "../wire";

export const PAGE = 50;

/** The total number of runs, and the fetched pages, keyed by their offset in the list. */
export interface Pages {
  readonly total: number;
  readonly pages: ReadonlyMap<number, readonly RunSummary[]>;
}

export const NO_PAGES: Pages = { total: 0, pages: new Map() };

/** Return the offsets of the pages that contain these rows and have not been fetched. */
export function missing({ total, pages }: Pages, first: number, last: number): number[] {
  const offsets: number[] = [];
  for (let offset = Math.floor(first / PAGE) * PAGE; offset < Math.min(last, total); offset += PAGE) {
    if (!pages.has(offset)) offsets.push(offset);
  }
  return offsets;
}

/** Add a fetched page. If the total has changed, runs have moved to other rows, so all other pages are dropped. */
export function withPage({ total, pages }: Pages, page: RunPage): Pages {
  const valid = page.total === total ? pages : [];
  return { total: page.total, pages: new Map([...valid, [page.offset, page.runs]]) };
}

/** Return the run in a row, or null. A summary from the websocket is preferred to an older one from a page. */
export function runAt({ pages }: Pages, row: number, streamed: ReadonlyMap<string, RunSummary>): RunSummary | null {
  const run = pages.get(Math.floor(row / PAGE) * PAGE)?.[row % PAGE];
  return run ? (streamed.get(run.id) ?? run) : null;
}

/** Return the first page of the list if the websocket has sent all runs on it, and otherwise null. */
export function firstPage(runs: readonly RunSummary[], total: number): RunPage | null {
  // The newest runs come first. Active runs that are older follow, but they are not on the first page.
  const newest = runs.slice(0, PAGE);
  return newest.length === Math.min(PAGE, total) ? { runs: newest, offset: 0, total } : null;
}
