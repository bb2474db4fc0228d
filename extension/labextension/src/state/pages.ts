/** The pages of the list of runs that the browser has fetched. */

import type { RunPage, RunSummary } from "../wire";

export const PAGE = 50;

/** The number of runs, and the fetched pages by their offset in the list. */
export interface Pages {
  readonly total: number;
  readonly pages: ReadonlyMap<number, readonly RunSummary[]>;
}

export const NO_PAGES: Pages = { total: 0, pages: new Map() };

/** Return the offsets of the pages that rows need and that are not fetched. */
export function missing({ total, pages }: Pages, first: number, last: number): number[] {
  const offsets: number[] = [];
  for (let offset = Math.floor(first / PAGE) * PAGE; offset < Math.min(last, total); offset += PAGE) {
    if (!pages.has(offset)) offsets.push(offset);
  }
  return offsets;
}

/** Return the list with a fetched page. Another total means that rows have moved: the other pages are dropped then. */
export function withPage({ total, pages }: Pages, page: RunPage): Pages {
  const valid = page.total === total ? pages : [];
  return { total: page.total, pages: new Map([...valid, [page.offset, page.runs]]) };
}

/** Return the run in a row; a summary from the stream is newer than one from a page. */
export function runAt({ pages }: Pages, row: number, streamed: ReadonlyMap<string, RunSummary>): RunSummary | null {
  const run = pages.get(Math.floor(row / PAGE) * PAGE)?.[row % PAGE];
  return run ? (streamed.get(run.id) ?? run) : null;
}

/** Return the first page if the stream has sent all of its runs. */
export function firstPage(runs: readonly RunSummary[], total: number): RunPage | null {
  // Newest first; the stream appends old runs that are still active.
  const newest = runs.slice(0, PAGE);
  return newest.length === Math.min(PAGE, total) ? { runs: newest, offset: 0, total } : null;
}
