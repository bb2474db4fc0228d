/** The list of runs. Only the visible rows are rendered, because there can be very many runs. */

import { useEffect, useRef, useState, type JSX, type KeyboardEvent } from "react";

import { MOST_COMPARED } from "../../charts/comparison";
import { basename, clock, title } from "../../format";
import type { Filter } from "../../net/filters";
import type { RunSummary } from "../../wire";
import { usePanelContext } from "../context";
import { useSize } from "../../hooks";
import { Empty, Status } from "../parts";
import { Elapsed } from "./elapsed";
import { useRuns } from "./useRuns";
import { rowsOf, scrollTo, type Rows, type View } from "./virtualRows";

export const ROW = 58;
const INITIAL_HEIGHT = 480;

interface Props {
  filter: Filter;
  /** Id of the run whose page the user has just left. The row of this run takes the focus. */
  previous: string | null;
  selected: ReadonlySet<string>;
  select: (run: RunSummary, selected: boolean) => void;
  open: (id: string) => void;
}

export function RunList({ filter, previous, selected, select, open }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const box = useRef<HTMLDivElement>(null);
  const [scrollTop, setScrollTop] = useState(0);
  const [current, setCurrent] = useState(0);
  const height = useSize(box, "clientHeight", INITIAL_HEIGHT);
  const [total, setTotal] = useState(0);
  const view: View = { scrollTop, height, rowHeight: ROW, total };
  const rows = rowsOf(view);
  const runs = useRuns(filter, rows.last ? rows : { first: 0, last: 1 });
  if (runs.total !== total) setTotal(runs.total);
  const active = Math.max(0, Math.min(current, total - 1));
  const moved = useRef(false);
  useEffect(() => {
    if (moved.current) box.current?.querySelector<HTMLElement>(`[data-row="${active}"]`)?.focus();
    moved.current = false;
  }, [active]);
  useEffect(() => {
    if (!previous || !runs.known) return;
    const buttons = box.current?.querySelectorAll<HTMLElement>("[data-row]") ?? [];
    ([...buttons].find((button) => button.dataset["run"] === previous) ?? buttons[0])?.focus();
  }, [previous, runs.known]);
  const onKeyDown = (event: KeyboardEvent) => {
    const next = nextRow(event.key, active, total);
    if (next === null || !box.current) return;
    event.preventDefault();
    const top = (box.current.scrollTop = scrollTo(next, view));
    setScrollTop(top);
    moved.current = next !== active;
    setCurrent(next);
  };
  return (
    <>
      <p className="fd-muted" role="status">
        {trans._n("%1 run", "%1 runs", total)}
      </p>
      <div
        ref={box}
        className="fd-runs"
        hidden={total === 0}
        onScroll={(event) => setScrollTop(event.currentTarget.scrollTop)}
        onKeyDown={onKeyDown}
      >
        <ul aria-label={trans.__("Runs")} style={{ height: total * ROW }}>
          {rendered(rows, active, total).map((row) => (
            <li
              key={row}
              className="fd-run"
              aria-setsize={total}
              aria-posinset={row + 1}
              style={{ top: row * ROW, height: ROW }}
              onFocus={() => setCurrent(row)}
            >
              <Row run={runs.at(row)} {...{ row, selected, select, open }} active={row === active} />
            </li>
          ))}
        </ul>
      </div>
      {runs.known && total === 0 && <Empty title={trans.__("No run matches the filter")} />}
    </>
  );
}

/** Return the rows to render. They include the active row, which has the focus or receives it when Tab is pressed. */
function rendered({ first, last }: Rows, active: number, total: number): number[] {
  const visible = Array.from({ length: Math.max(0, last - first) }, (_, n) => first + n);
  if (active >= total) return visible;
  return [...(active < first ? [active] : []), ...visible, ...(active >= last ? [active] : [])];
}

/** Return the row to which a key moves the focus, or null if the key does not move it. */
function nextRow(key: string, row: number, total: number): number | null {
  const next = { ArrowDown: row + 1, ArrowUp: row - 1, Home: 0, End: total - 1 }[key];
  return next === undefined ? null : Math.min(Math.max(0, next), total - 1);
}

interface RowProps extends Omit<Props, "filter" | "previous"> {
  run: RunSummary | null;
  row: number;
  active: boolean;
}

/** A row of the list. Its button is rendered before the run is fetched, so that the arrow keys can reach the row. */
function Row({ run, row, active, selected, select, open }: RowProps): JSX.Element {
  const { trans } = usePanelContext();
  const tabIndex = active ? 0 : -1;
  return (
    <>
      {run && (
        <input
          type="checkbox"
          tabIndex={tabIndex}
          checked={selected.has(run.id)}
          disabled={selected.size >= MOST_COMPARED && !selected.has(run.id)}
          aria-label={trans.__("Compare %1", title(run))}
          onChange={(event) => select(run, event.target.checked)}
        />
      )}
      <button
        type="button"
        className="fd-run-open"
        data-row={row}
        data-run={run?.id}
        aria-disabled={!run}
        tabIndex={tabIndex}
        onClick={() => run && open(run.id)}
      >
        {run ? <RunFacts run={run} /> : <span className="fd-run-facts">{trans.__("Loading…")}</span>}
      </button>
    </>
  );
}

function RunFacts({ run }: { run: RunSummary }): JSX.Element {
  const { trans } = usePanelContext();
  const ranks = trans._n("%1 rank", "%1 ranks", run.size);
  const from = run.notebook ? basename(run.notebook) : run.cluster;
  return (
    <>
      <span className="fd-run-title">{title(run)}</span>
      <Status of={run.status} />
      <span className="fd-run-facts">
        <Elapsed run={run} />
        {["", ranks, from, clock(run.started, new Date())].join(" · ")}
      </span>
    </>
  );
}
