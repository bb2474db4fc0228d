/** The pages of the list or table of runs, as far as they have been fetched from the server. */

import type { RunSummary } from "../wire";

export const PAGE = 50;

/** One page of the list of runs. */
export interface Page<R extends RunSummary> {
  readonly runs: readonly R[];
  readonly offset: number;
  readonly total: number;
}

/** The total number of runs, and the fetched pages, keyed by their offset in the list. */
export interface Pages<R extends RunSummary = RunSummary> {
  readonly total: number;
  readonly pages: ReadonlyMap<number, readonly R[]>;
}

export const NO_PAGES: Pages<never> = { total: 0, pages: new Map() };

/** Return the offsets of the pages that contain the rows from `first` to `last`. */
export function offsetsOf(first: number, last: number): number[] {
  const start = Math.floor(first / PAGE) * PAGE;
  return Array.from({ length: Math.max(0, Math.ceil((last - start) / PAGE)) }, (_, n) => start + n * PAGE);
}

/** Return the offsets of the pages that contain these rows and have not been fetched. */
export function missing({ total, pages }: Pages, first: number, last: number): number[] {
  return offsetsOf(first, Math.min(last, total)).filter((offset) => !pages.has(offset));
}

/** Add a fetched page. If the total has changed, runs have moved to other rows, so all other pages are dropped. */
export function withPage<R extends RunSummary>({ total, pages }: Pages<R>, page: Page<R>): Pages<R> {
  const valid = page.total === total ? pages : [];
  return { total: page.total, pages: new Map([...valid, [page.offset, page.runs]]) };
}

/** Return the run in a row, or null. A summary from the websocket is preferred to an older one from a page. */
export function runAt<R extends RunSummary>(
  { pages }: Pages<R>,
  row: number,
  streamed: ReadonlyMap<string, RunSummary>,
): R | null {
  const run = pages.get(Math.floor(row / PAGE) * PAGE)?.[row % PAGE];
  return run ? { ...run, ...streamed.get(run.id) } : null;
}

/** Return the first page of the list if the websocket has sent all runs on it, and otherwise null. */
export function firstPage(runs: readonly RunSummary[], total: number): Page<RunSummary> | null {
  // The newest runs come first. Active runs that are older follow, but they are not on the first page.
  const newest = runs.slice(0, PAGE);
  return newest.length === Math.min(PAGE, total) ? { runs: newest, offset: 0, total } : null;
}
