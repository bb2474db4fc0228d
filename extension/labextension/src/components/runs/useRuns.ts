/** The list of runs, fetched in pages while the user scrolls. */

import { useEffect, useMemo, useRef, useState } from "react";

import { isAll, type Filter } from "../../net/filters";
import { firstPage, missing, NO_PAGES, PAGE, runAt, withPage, type Pages } from "../../state/pages";
import type { RunSummary } from "../../wire";
import { usePanelContext, usePanelState } from "../context";
import type { Rows } from "./virtualRows";

export interface Runs {
  readonly total: number;
  /** Whether the server has sent the total. */
  readonly known: boolean;
  /** The run in a row; null until it is fetched. */
  at(row: number): RunSummary | null;
}

/** Return the runs that match a filter; the runs of `rows` are fetched. */
export function useRuns(filter: Filter, rows: Rows): Runs {
  const { model } = usePanelContext();
  const { runs, total } = usePanelState();
  const [pages, setPages] = useState<Pages>(NO_PAGES);
  const streamed = useMemo(() => new Map((runs ?? []).map((run) => [run.id, run])), [runs]);
  const requested = useRef(new Set<string>());
  // Rows move after a change of the filter, with a new run, and, if there is a filter, with a new status of a run.
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

  /** Return a page; null if it was requested before, or if the rows have moved in the meantime. */
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
