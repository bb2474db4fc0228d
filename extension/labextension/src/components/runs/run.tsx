/** The page of one run, with its charts, ranks, logs, code and options. */

import { useEffect, useState, type JSX } from "react";

import { basename, configText, number, title } from "../../format";
import { runOf } from "../../state/reducer";
import type { RunDetail, RunMessage, RunSummary, RunView } from "../../wire";
import { usePanelContext, usePanelState, useSubscription } from "../context";
import { RankLog } from "../log";
import { Empty, Status } from "../parts";
import { Elapsed, TimeLeft } from "./elapsed";
import { MemoryTable } from "./memoryTable";
import { RankTable } from "./rankTable";
import { Reports } from "./reports";
import { SyncLine } from "./syncLine";
import { System } from "./system";

interface Props {
  id: string;
  /** Whether the user has just opened the run. If so, the page of the run takes the focus. */
  focus: boolean;
  close: () => void;
  /** Whether the settings of the charts are shown at first. */
  unfolded?: boolean;
}

export function RunDetailView({ id, focus, close, unfolded }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const state = usePanelState();
  const [byRank, setByRank] = useState(false);
  useSubscription({ runs: [id], byRank });
  const { detail, missing } = useDetail(id, state.views[id]?.view);
  // The response to the plain request may arrive before the first view of the run on the websocket.
  const shown: Pick<RunMessage, "summary" | "view" | "sampled"> | null = state.views[id] ?? detail;
  return (
    <section className="fd-detail" aria-label={trans.__("Run %1", id)}>
      <BackButton focus={focus} close={close} />
      {shown ? (
        <>
          <Head
            summary={runOf(state, id) ?? shown.summary}
            view={shown.view}
            tensorboard={detail?.tensorboard ?? false}
          />
          <Reports view={shown.view} {...{ byRank, setByRank, unfolded }} />
          {detail && <Config config={detail.config} />}
          <ReportsNote empty={!shown.view.series.length} sampled={shown.sampled} />
          <SyncLine view={shown.view} />
          <RankTable rows={shown.view.ranks} />
          <MemoryTable rows={shown.view.ranks} />
          <System id={id} goesOn={(runOf(state, id) ?? shown.summary).goes_on} />
          {shown.view.ranks.length > 0 && <RankLog run={id} rows={shown.view.ranks} />}
        </>
      ) : (
        <Empty title={missing ? trans.__("This run cannot be shown") : trans.__("Loading…")} />
      )}
      {detail && <Origin detail={detail} />}
    </section>
  );
}

export function BackButton({ focus, close }: { focus: boolean; close: () => void }): JSX.Element {
  const { trans } = usePanelContext();
  return (
    <div className="fd-row">
      <button type="button" className="fd-link" autoFocus={focus} onClick={close}>
        ‹ {trans.__("All runs")}
      </button>
    </div>
  );
}

/**
 * Return the details of a run, whose newest view is `streamed`.
 *
 * They are fetched again with the first report, because a cell usually calls `fd.config` before it, and when the run
 * ends, because its results exist only then.
 */
function useDetail(id: string, streamed?: RunView): { detail: RunDetail | null; missing: boolean } {
  const { model } = usePanelContext();
  const [detail, setDetail] = useState<RunDetail | null>(null);
  const [missing, setMissing] = useState(false);
  const view = streamed ?? detail?.view;
  const reported = view !== undefined && view.series.length > 0;
  const ended = view?.ended ?? false;
  useEffect(() => {
    let mounted = true;
    void model
      .attempt(() => model.api.run(id))
      .then((found) => {
        if (!mounted) return;
        setMissing(!found);
        if (found) setDetail(found);
      });
    return () => {
      mounted = false;
    };
  }, [model, id, reported, ended]);
  return { detail, missing };
}

function ReportsNote({ empty, sampled }: { empty: boolean; sampled: boolean }): JSX.Element | null {
  const { trans } = usePanelContext();
  if (!empty && !sampled) return null;
  return (
    <p className="fd-muted">
      {empty
        ? trans.__("No reports yet. Call fd.report(loss=loss) in the cell to draw a chart.")
        : trans.__("The charts show samples of long files.")}
    </p>
  );
}

interface HeadProps {
  summary: RunSummary;
  view: RunView;
  /** Whether TensorBoard can show the run. */
  tensorboard: boolean;
}

function Head({ summary, view, tensorboard }: HeadProps): JSX.Element {
  const { model, trans, openNotebook, openLog } = usePanelContext();
  const [requested, setRequested] = useState(false);
  const stopping = requested && summary.goes_on;
  const speed = view.samples_per_second;
  const facts = [
    trans._n("%1 rank", "%1 ranks", summary.size),
    summary.backend,
    trans.__("cluster %1", summary.cluster),
    speed === null ? null : trans.__("%1 samples/s", number(speed)),
  ];
  const stop = async () => {
    setRequested(true);
    if (!(await model.attempt(() => model.api.stopRun(summary.id)))) setRequested(false);
  };
  return (
    <>
      <div className="fd-row">
        <h3 className="fd-title" title={summary.id}>
          {title(summary)}
        </h3>
        <Status of={summary.status} />
      </div>
      <div className="fd-facts">
        <Elapsed run={summary} />
        <TimeLeft view={view} /> · {facts.filter(Boolean).join(" · ")}
        {summary.notebook && (
          <>
            {" · "}
            <button
              type="button"
              className="fd-link"
              title={summary.notebook}
              onClick={() => openNotebook(summary, summary.cell)}
            >
              {trans.__("cell in %1", basename(summary.notebook))}
            </button>
          </>
        )}
      </div>
      <div className="fd-row">
        {summary.goes_on && (
          <button type="button" className="fd-stop" disabled={stopping} onClick={() => void stop()}>
            {stopping ? trans.__("Stopping…") : trans.__("Stop the run")}
          </button>
        )}
        <button type="button" className="fd-button" onClick={() => openLog(summary.id, 0)}>
          {trans.__("Open log")}
        </button>
        <a className="fd-button" href={model.api.csvUrl(summary.id)} download={`${summary.id}.csv`}>
          {trans.__("Download CSV")}
        </a>
        {tensorboard && (
          <a className="fd-button" href={model.api.tensorBoardUrl(summary.id)} target="_blank" rel="noopener">
            TensorBoard
          </a>
        )}
      </div>
    </>
  );
}

/** The hyper-parameters of a run. */
function Config({ config }: { config: RunDetail["config"] }): JSX.Element | null {
  const entries = Object.entries(config);
  if (!entries.length) return null;
  return (
    <dl className="fd-config">
      {entries.map(([name, value]) => (
        <div key={name}>
          <dt className="fd-muted">{name}</dt>
          <dd>{configText(value)}</dd>
        </div>
      ))}
    </dl>
  );
}

/** The code, options and results of a run. They can be long, so they are rendered only while the user shows them. */
function Origin({ detail }: { detail: RunDetail }): JSX.Element {
  const { trans } = usePanelContext();
  const [open, setOpen] = useState(false);
  const { code, folder, options, versions, results } = detail;
  return (
    <details className="fd-origin" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{trans.__("Code, options, results")}</summary>
      {open && (
        <>
          <pre tabIndex={0} aria-label={trans.__("Code of the run")}>
            {code}
          </pre>
          <pre tabIndex={0} aria-label={trans.__("Options, versions and results")}>
            {JSON.stringify({ options, versions, results }, null, 2)}
          </pre>
          <p className="fd-muted">{trans.__("Stored in %1", folder)}</p>
        </>
      )}
    </details>
  );
}
