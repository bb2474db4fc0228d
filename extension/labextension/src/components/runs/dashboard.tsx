/** The dashboard of a run, which JupyterLab and Notebook 7 show in the output of a cell. */

import { useEffect, useState, type JSX } from "react";

import { number, title } from "../../format";
import { RequestError } from "../../net/requestError";
import { runOf } from "../../state/reducer";
import type { RankRow, RunSummary, RunView } from "../../wire";
import { usePanelContext, usePanelState } from "../context";
import { Note, Status } from "../parts";
import { Elapsed, TimeLeft } from "./elapsed";
import { MemoryTable } from "./memoryTable";
import { RankTable } from "./rankTable";
import { Reports } from "./reports";
import { SyncLine } from "./syncLine";
import { useStoredRun } from "./useStoredRun";

interface Props {
  id: string;
  /** Called with whether the server knows the run. */
  onKnown: (known: boolean) => void;
}

export function Dashboard({ id, onKnown }: Props): JSX.Element | null {
  const { trans } = usePanelContext();
  const state = usePanelState();
  const [byRank, setByRank] = useState(false);
  const shown = useStoredRun(id, byRank);
  const known = shown !== null;
  useEffect(() => {
    onKnown(known);
  }, [onKnown, known]);
  if (!shown) return null;
  const { view } = shown;
  const summary = runOf(state, id) ?? shown.summary;
  const orphaned = isOrphaned(summary);
  return (
    <section className="fd" aria-label={trans.__("Training run")}>
      <div className="fd-card">
        <Head summary={summary} view={view} />
        {orphaned && (
          <Note info>
            {trans.__("The kernel that followed this run has ended, and the run continues. ")}
            {trans.__("Run `%cluster attach` in a new kernel to get its output and result.")}
          </Note>
        )}
        <Reports view={orphaned ? { ...view, error: null } : view} byRank={byRank} setByRank={setByRank} />
        <SyncLine view={view} />
        <RankTable rows={view.ranks} />
        <MemoryTable rows={view.ranks} />
        <Logs ranks={view.ranks.filter((row) => row.log.length)} />
      </div>
    </section>
  );
}

/** Return whether ranks execute the run although the kernel that followed it has ended. */
function isOrphaned({ status, goes_on: goesOn }: RunSummary): boolean {
  return status === "lost" && goesOn;
}

function Head({ summary, view }: { summary: RunSummary; view: RunView }): JSX.Element {
  const { model, trans } = usePanelContext();
  const [requested, setRequested] = useState(false);
  const [problem, setProblem] = useState("");
  const stopping = requested && summary.goes_on;
  const speed = view.samples_per_second;
  const facts = [
    trans._n("%1 rank", "%1 ranks", summary.size),
    summary.backend,
    speed !== null && trans.__("%1 samples/s", number(speed)),
  ];
  const stop = async () => {
    setRequested(true);
    setProblem("");
    try {
      await model.api.stopRun(summary.id);
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      setRequested(false);
      setProblem(error.message);
    }
  };
  return (
    <>
      <div className="fd-head">
        <span role="status">
          <Status of={stopping ? "stopping" : summary.status} label={isOrphaned(summary) && trans.__("no kernel")} />
        </span>
        <span className="fd-title" title={summary.id}>
          {title(summary)}
        </span>
        <span className="fd-facts">
          <Elapsed run={summary} />
          <TimeLeft view={view} /> · {facts.filter(Boolean).join(" · ")}
        </span>
        <button type="button" className="fd-stop" disabled={!summary.goes_on || stopping} onClick={() => void stop()}>
          {stopping ? trans.__("Stopping…") : trans.__("Stop")}
        </button>
      </div>
      {problem && <Note error>{problem}</Note>}
    </>
  );
}

function Logs({ ranks }: { ranks: readonly RankRow[] }): JSX.Element {
  const { trans } = usePanelContext();
  return (
    <details className="fd-logs" hidden={!ranks.length}>
      <summary>{trans.__("Last log lines")}</summary>
      {ranks.map(({ rank, log }) => (
        <div key={rank} className="fd-log">
          <span className="fd-muted">{trans.__("rank %1", rank)}</span>
          <pre>{log.join("\n")}</pre>
        </div>
      ))}
    </details>
  );
}
