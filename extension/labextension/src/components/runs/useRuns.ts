/** Fetches the list of runs page by page while the user scrolls. */

import { useEffect, useMemo, useRef, useState } from "react";

import { isAll, type Filter } from "../../net/filters";
import { firstPage, missing, NO_PAGES, PAGE, runAt, withPage, type Pages } from "../../state/pages";
import type { RunSummary } from "../../wire";
import { usePanelContext, usePanelState } from "../context";
import type { Rows } from "./virtualRows";

export interface Runs {
  readonly total: number;
  /** Whether the server has sent the total number of runs. */
  readonly known: boolean;
  /** Return the run in a row, or null until the run is fetched. */
  at(row: number): RunSummary | null;
}

/** Return the list of runs that match a filter, and fetch the runs in `rows`. */
export function useRuns(filter: Filter, rows: Rows): Runs {
  const { model } = usePanelContext();
  const { runs, total } = usePanelState();
  const [pages, setPages] = useState<Pages>(NO_PAGES);
  const streamed = useMemo(() => new Map((runs ?? []).map((run) => [run.id, run])), [runs]);
  const requested = useRef(new Set<string>());
  // If this key changes, runs may have moved to other rows, so the list is fetched again. The key contains the filter,
  // the total number of runs and the id of the newest run. If a filter is set, the key also contains the status of each
  // streamed run, because a run whose status changes may begin or cease to match the filter.
  const order = JSON.stringify([filter, total, runs?.[0]?.id, isAll(filter) || runs?.map((run) => run.status)]);
  const latest = useRef({ runs, filter, order });
  latest.current = { runs, filter, order };

  useEffect(() => {
    const now = latest.current;
    requested.current.clear();
    const page = isAll(now.filter) && now.runs ? firstPage(now.runs, total) : null;
    if (page) setPages(withPage(NO_PAGES, page));
    else void fetchPage(0).then((fetched) => fetched && setPages(withPage(NO_PAGES, fetched)));
    // eslint-disable-next-line react-hooks/exhaustive-deps -- `order` contains the other dependencies
  }, [order]);

  useEffect(() => {
    for (const offset of missing(pages, rows.first, rows.last)) {
      void fetchPage(offset).then((page) => page && setPages((before) => withPage(before, page)));
    }
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the other values are read from `latest`
  }, [pages, rows.first, rows.last]);

  /** Fetch a page. Return null if it was requested before, if the request fails, or if the list has changed since. */
  async function fetchPage(offset: number) {
    const { order: before, filter: wanted } = latest.current;
    const key = `${before} ${offset}`;
    if (requested.current.has(key)) return null;
    requested.current.add(key);
    const page = await model.attempt(() => model.api.runs(wanted, offset, PAGE));
    if (!page) requested.current.delete(key);
    return latest.current.order === before ? page : null;
  }

  return { total: pages.total, known: pages !== NO_PAGES, at: (row) => runAt(pages, row, streamed) };
}
