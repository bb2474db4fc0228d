/** The tab "Runs" of the panel. It shows one run, a comparison, or the list of all runs with charts of active runs. */

import { useMemo, useState, type JSX, type ReactNode } from "react";

import { Charts } from "../../charts/charts";
import { MOST_COMPARED } from "../../charts/comparison";
import { title } from "../../format";
import { ALL, isAll, STATUSES, type Filter } from "../../net/filters";
import { activeRuns } from "../../state/reducer";
import type { RunStatus, RunSummary } from "../../wire";
import { usePanelContext, usePanelState, useSubscription } from "../context";
import { useDebounced } from "../../hooks";
import { Empty, Select, stateLabel, Status, type Option } from "../parts";
import { Compare } from "./compare";
import { Elapsed } from "./elapsed";
import { RunDetailView } from "./run";
import { RunList } from "./runlist";

const MOST_LIVE = 2;
/** The list is requested from the server when the user has not typed for this long, in milliseconds. */
export const TYPING_MS = 250;

/** The page from which the user returned to the list. It is a run, or the comparison if `run` is null. */
interface Previous {
  readonly run: string | null;
}

interface Props {
  /** Id of the run that is shown, or an empty string for the list. */
  id: string;
  /** Whether the user has just opened the run. If so, the page of the run takes the focus. */
  focus: boolean;
  open: (id: string) => void;
}

export function Runs({ id, focus, open }: Props): JSX.Element {
  const { trans, insertTraining, openPage } = usePanelContext();
  const { runs, total } = usePanelState();
  const [filter, setFilter] = useState(ALL);
  const debounced = useDebounced(filter, TYPING_MS);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [comparing, setComparing] = useState(false);
  const [previous, setPrevious] = useState<Previous | null>(null);
  const ids = useMemo(() => [...selected], [selected]);
  const select = (run: RunSummary, wanted: boolean) =>
    setSelected(new Set(wanted ? [...selected, run.id] : ids.filter((other) => other !== run.id)));
  const leave = (page: Previous) => {
    setPrevious(page);
    setComparing(false);
    open("");
  };
  if (id) return <RunDetailView key={id} id={id} focus={focus} close={() => leave({ run: id })} />;
  if (comparing) return <Compare ids={ids} close={() => leave({ run: null })} />;
  if (!runs) return <Empty title={trans.__("Loading…")} />;
  if (!total && isAll(filter)) {
    return (
      <Empty title={trans.__("No run yet")}>
        <p>{trans.__("Insert a training cell into a notebook and run it. The chart of the run appears here.")}</p>
        <button type="button" className="fd-main" onClick={insertTraining}>
          {trans.__("Insert training cell")}
        </button>
      </Empty>
    );
  }
  return (
    <>
      {isAll(filter) && <Live open={open} />}
      <FilterBar filter={filter} setFilter={setFilter} />
      <div className="fd-row">
        <button type="button" title={trans.__("Show the table of all runs in the main area")} onClick={openPage}>
          {trans.__("All runs")}
        </button>
        <button
          type="button"
          disabled={selected.size < 2}
          autoFocus={previous?.run === null}
          onClick={() => setComparing(true)}
        >
          {trans.__("Compare (%1)", selected.size)}
        </button>
        {selected.size > 0 && (
          <button type="button" className="fd-small" onClick={() => setSelected(new Set())}>
            {trans.__("Clear the selection")}
          </button>
        )}
        {selected.size >= MOST_COMPARED && (
          <span className="fd-muted" role="note">
            {trans.__("At most %1 runs are compared.", MOST_COMPARED)}
          </span>
        )}
      </div>
      <RunList filter={debounced} previous={previous?.run ?? null} selected={selected} select={select} open={open} />
    </>
  );
}

/** The newest active runs, each with the chart of its first series. */
function Live({ open }: { open: (id: string) => void }): JSX.Element | null {
  const { trans } = usePanelContext();
  const state = usePanelState();
  const live = activeRuns(state).slice(0, MOST_LIVE);
  useSubscription({ runs: live.map((run) => run.id) });
  if (!live.length) return null;
  return (
    <section className="fd-live" aria-label={trans.__("Running now")}>
      {live.map((run) => (
        <div key={run.id} className="fd-live-run">
          <div className="fd-row">
            <button type="button" className="fd-link" onClick={() => open(run.id)}>
              {title(run)}
            </button>
            <Status of={run.status} />
            <span className="fd-muted">
              <Elapsed run={run} />
            </span>
          </div>
          <Charts series={state.views[run.id]?.view.series.slice(0, 1) ?? []} />
        </div>
      ))}
    </section>
  );
}

interface FilterBarProps<F extends Filter> {
  filter: F;
  setFilter: (filter: F) => void;
  children?: ReactNode;
}

/** The fields of the filter. `children` are further fields. */
export function FilterBar<F extends Filter>({ filter, setFilter, children }: FilterBarProps<F>): JSX.Element {
  const { trans } = usePanelContext();
  const { clusters, runs } = usePanelState();
  const names = [...(clusters ?? []).map(({ name }) => name), ...(runs ?? []).map(({ cluster }) => cluster)];
  const choices = [...new Set([...names, filter.cluster])].filter(Boolean).sort();
  return (
    <div className="fd-filter" role="search" aria-label={trans.__("Filter runs")}>
      <input
        type="search"
        value={filter.text}
        placeholder={trans.__("Name, notebook, tag, lr=0.1")}
        aria-label={trans.__("Filter by name, notebook, tag, hyper-parameter or notes")}
        onChange={(event) => setFilter({ ...filter, text: event.target.value })}
      />
      <Select
        label={trans.__("Filter by status")}
        value={filter.status}
        options={[["", trans.__("any status")], ...STATUSES.map((name): Option => [name, stateLabel(trans, name)])]}
        set={(status) => setFilter({ ...filter, status: status as RunStatus | "" })}
      />
      <Select
        label={trans.__("Filter by cluster")}
        value={filter.cluster}
        options={[["", trans.__("any cluster")], ...choices.map((name): Option => [name, name])]}
        set={(cluster) => setFilter({ ...filter, cluster })}
      />
      {children}
    </div>
  );
}
