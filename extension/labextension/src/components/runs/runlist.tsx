/** The list of runs. Only the visible rows are rendered, because there can be very many runs. */

import { useRef, useState, type JSX } from "react";

import { MOST_COMPARED } from "../../charts/comparison";
import { basename, clock, title } from "../../format";
import type { Filter } from "../../net/filters";
import type { RunSummary } from "../../wire";
import { usePanelContext } from "../context";
import { Empty, Status } from "../parts";
import { Elapsed } from "./elapsed";
import { useRuns } from "./useRuns";
import { useReturnedFocus, useVirtualRows } from "./virtualRows";

export const ROW = 58;

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
  const [total, setTotal] = useState(0);
  const { first, last, active, rendered, setActive, ...handlers } = useVirtualRows(box, { rowHeight: ROW, total });
  const runs = useRuns(filter, last ? { first, last } : { first: 0, last: 1 });
  if (runs.total !== total) setTotal(runs.total);
  useReturnedFocus(box, previous, runs.known);
  return (
    <>
      <p className="fd-muted" role="status">
        {trans._n("%1 run", "%1 runs", total)}
      </p>
      <div ref={box} className="fd-runs" hidden={total === 0} {...handlers}>
        <ul aria-label={trans.__("Runs")} style={{ height: total * ROW }}>
          {rendered.map((row) => (
            <li
              key={row}
              className="fd-run"
              aria-setsize={total}
              aria-posinset={row + 1}
              style={{ top: row * ROW, height: ROW }}
              onFocus={() => setActive(row)}
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
