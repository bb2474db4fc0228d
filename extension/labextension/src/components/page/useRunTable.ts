/** Fetches the table of runs page by page while the user scrolls, and again whenever the runs change. */

import { useEffect, useMemo, useRef, useState } from "react";

import type { Sort, TableFilter } from "../../net/filters";
import { NO_PAGES, offsetsOf, PAGE, runAt, withPage, type Pages } from "../../state/pages";
import { activeRuns } from "../../state/reducer";
import type { RunRow, RunTable } from "../../wire";
import { usePanelContext, usePanelState } from "../context";
import type { Rows } from "../runs/virtualRows";
import type { Names } from "./columns";

/** The values of active runs are fetched again after this time, in milliseconds. */
const LIVE_MS = 10_000;
const NO_NAMES: Names = { series: [], config: [], tags: [] };

export interface RunTableState {
  readonly total: number;
  /** Whether the server has sent the total number of runs. */
  readonly known: boolean;
  readonly names: Names;
  /** Return the run in a row, or null until the run is fetched. */
  at(row: number): RunRow | null;
  /** Fetch the rows again, because the user has changed or deleted runs. */
  refresh(): void;
}

export function useRunTable(filter: TableFilter, sort: Sort, rows: Rows): RunTableState {
  const { model, visible } = usePanelContext();
  const state = usePanelState();
  const { runs } = state;
  const [pages, setPages] = useState<Pages<RunRow>>(NO_PAGES);
  const [names, setNames] = useState(NO_NAMES);
  const [version, setVersion] = useState(0);
  const refresh = () => setVersion((before) => before + 1);
  const streamed = useMemo(() => new Map((runs ?? []).map((run) => [run.id, run])), [runs]);
  // The offsets that were requested since the last change of the runs, the filter or the order.
  const requested = useRef(new Set<number>());
  const ready = visible && runs !== null;
  const order = JSON.stringify([filter, sort]);
  const hasActive = activeRuns(state).length > 0;

  useEffect(() => setPages(({ total }) => ({ total, pages: new Map() })), [order]);
  useEffect(() => {
    requested.current = new Set();
  }, [order, runs, version]);
  useEffect(() => {
    if (ready) for (const offset of offsetsOf(rows.first, Math.max(1, rows.last))) void fetchPage(offset);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- `order` contains the filter and the sort
  }, [ready, order, runs, version, rows.first, rows.last]);
  useEffect(() => {
    if (!ready || !hasActive) return undefined;
    const timer = setInterval(refresh, LIVE_MS);
    return () => clearInterval(timer);
  }, [ready, hasActive]);

  /** Fetch a page, unless it was requested before. Ignore it if the table has changed since. */
  async function fetchPage(offset: number) {
    const requests = requested.current;
    if (requests.has(offset)) return;
    requests.add(offset);
    const table = await model.attempt(() => model.api.table(filter, sort, offset, PAGE));
    if (!table) requests.delete(offset);
    else if (requests === requested.current) receive(table);
  }

  function receive(table: RunTable) {
    setPages((before) => withPage(before, table));
    setNames(table);
  }

  return { total: pages.total, known: names !== NO_NAMES, names, at: (row) => runAt(pages, row, streamed), refresh };
}
