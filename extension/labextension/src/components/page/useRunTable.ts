/** Fetches the table of runs page by page while the user scrolls, and again whenever the runs change. */

import { useEffect, useMemo, useRef, useState } from "react";

import type { Sort, TableFilter } from "../../net/filters";
import { NO_PAGES, offsetsOf, PAGE, runAt, withPage, type Pages } from "../../state/pages";
import { activeRuns } from "../../state/reducer";
import type { RunTable } from "../../wire";
import { usePanelContext, usePanelState } from "../context";
import type { Rows } from "../runs/virtualRows";
import { rowsOf, type Names, type TableRow } from "./columns";

/** The values of active runs are fetched again after this time, in milliseconds. */
const LIVE_MS = 10_000;
/** The rows are fetched again after this time while the server is still reading values, in milliseconds. */
const INCOMPLETE_MS = 1000;
const NO_NAMES: Names = { series: [], config: [], tags: [], defaults: [] };

export interface RunTableState {
  readonly total: number;
  /** The filter with which the server has found this number of runs, or null until it has answered. */
  readonly filter: TableFilter | null;
  /** Whether the server has sent the total number of runs. */
  readonly known: boolean;
  /** Whether the server knew all values of the runs. Otherwise, values may be missing and the order is preliminary. */
  readonly complete: boolean;
  readonly names: Names;
  /** Return the run in a row, or null until the run is fetched. */
  at(row: number): TableRow | null;
  /** Fetch the rows again, because the user has changed or deleted runs. */
  refresh(): void;
}

/** Return the table. `added` are the columns that its rows have besides the first ones. */
export function useRunTable(filter: TableFilter, sort: Sort, added: readonly string[], rows: Rows): RunTableState {
  const { model, visible } = usePanelContext();
  const state = usePanelState();
  const { runs } = state;
  const [pages, setPages] = useState<Pages<TableRow>>(NO_PAGES);
  const [names, setNames] = useState(NO_NAMES);
  const [answered, setAnswered] = useState<TableFilter | null>(null);
  const [complete, setComplete] = useState(true);
  const [version, setVersion] = useState(0);
  const [answers, setAnswers] = useState(0);
  const refresh = () => setVersion((before) => before + 1);
  const streamed = useMemo(() => new Map((runs ?? []).map((run) => [run.id, run])), [runs]);
  const ready = visible && runs !== null;
  const order = JSON.stringify([filter, sort]);
  const question = JSON.stringify([filter, sort, added]);
  const hasActive = activeRuns(state).length > 0;
  // The offsets that were requested since the last change of the runs or of the question.
  const requested = useRef(new Set<number>());
  // The question of each request in progress, by offset. A request for the same rows waits for its answer.
  const inProgress = useRef(new Map<number, string>());
  const wanted = useRef(question);

  useEffect(() => {
    setPages(({ total }) => ({ total, pages: new Map() }));
  }, [order]);
  useEffect(() => {
    wanted.current = question;
  }, [question]);
  useEffect(() => {
    requested.current = new Set();
  }, [question, runs, version]);
  useEffect(() => {
    if (ready) for (const offset of offsetsOf(rows.first, Math.max(1, rows.last))) void fetchPage(offset);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- `question` contains filter, sort and columns
  }, [ready, question, runs, version, answers, rows.first, rows.last]);
  useEffect(() => {
    if (!ready || !hasActive) return undefined;
    const timer = setInterval(refresh, LIVE_MS);
    return () => clearInterval(timer);
  }, [ready, hasActive]);
  useEffect(() => {
    if (!ready || complete) return undefined;
    const timer = setTimeout(refresh, INCOMPLETE_MS);
    return () => clearTimeout(timer);
  }, [ready, complete, answers]);

  /**
   * Fetch a page, unless it was requested before. If the same question is still unanswered, it is asked again after the
   * answer. The answer to a question about another filter, order or columns is ignored.
   */
  async function fetchPage(offset: number) {
    const requests = requested.current;
    if (requests.has(offset) || inProgress.current.get(offset) === question) return;
    requests.add(offset);
    inProgress.current.set(offset, question);
    const table = await model.attempt(() => model.api.table(filter, sort, added, offset, PAGE));
    if (inProgress.current.get(offset) === question) inProgress.current.delete(offset);
    if (!table) requests.delete(offset);
    else if (wanted.current === question) receive(table);
  }

  function receive(table: RunTable) {
    setPages((before) => withPage(before, { ...table, runs: rowsOf(table) }));
    setNames(table);
    setAnswered(filter);
    setComplete(table.complete);
    setAnswers((before) => before + 1);
  }

  const known = names !== NO_NAMES;
  return {
    total: pages.total,
    filter: answered,
    known,
    complete,
    names,
    at: (row) => runAt(pages, row, streamed),
    refresh,
  };
}
