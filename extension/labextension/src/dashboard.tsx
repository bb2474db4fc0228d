/**
 * The dashboard of a run, which is the front end of an anywidget.
 *
 * The kernel sets the trait `view` (see runs/view.py). The traits `per_rank`, `log_scale` and `stopping` contain the
 * user's choices.
 *
 * A dashboard whose kernel has ended says so. When another kernel attaches to the run, it creates a dashboard as well, and
 * the old dashboard shows the model of the new one from then on.
 */

import { useState, type JSX } from "react";
import { createRoot } from "react-dom/client";

import { Note } from "./components/parts";
import { RankTable } from "./components/runs/rankTable";
import { Reports } from "./components/runs/reports";
import { Follower, initialize, type Model } from "./follower";
import { duration, number, title } from "./format";
import { useTranslator } from "./i18n";
import type { RankRow, RunView } from "./wire";

interface Props {
  model: Model;
  view: RunView;
  /** Whether the run has not ended, and the kernel that followed it has. */
  orphaned: boolean;
  set: Model["set"];
}

function Dashboard({ model, view, orphaned, set }: Props): JSX.Element {
  const trans = useTranslator();
  return (
    <section className="fd" aria-label={trans.__("Training run")}>
      <div className="fd-card">
        <Head model={model} view={view} orphaned={orphaned} />
        {orphaned && (
          <Note>
            {trans.__(
              "The kernel that followed this run has ended. Run `%cluster attach` in a new kernel to show the run here again.",
            )}
          </Note>
        )}
        <Reports
          view={view}
          byRank={model.get("per_rank")}
          setByRank={(byRank) => set("per_rank", byRank)}
          logScales={[model.get("log_scale"), (names) => set("log_scale", names)]}
        />
        <RankTable rows={view.ranks} />
        <Logs ranks={view.ranks.filter((row) => row.log.length)} />
      </div>
    </section>
  );
}

function Head({ model, view, orphaned }: Omit<Props, "set">): JSX.Element {
  const trans = useTranslator();
  // The kernel confirms the request with the trait `stopping`, but a busy kernel may take a while to do so.
  const [pressed, setPressed] = useState(false);
  const stopping = (pressed || model.get("stopping")) && !view.ended && !orphaned;
  const { samples_per_second: speed } = view;
  const facts = [
    duration(view.elapsed),
    trans._n("%1 rank", "%1 ranks", view.size),
    view.backend,
    speed && trans.__("%1 samples/s", number(speed)),
  ];
  const stop = () => {
    setPressed(true);
    model.send({ type: "stop" });
  };
  return (
    <div className="fd-head">
      <span className="fd-status" role="status" data-status={orphaned ? "lost" : view.status}>
        {orphaned ? trans.__("no kernel") : stopping ? trans.__("stopping") : view.status}
      </span>
      <span className="fd-title" title={view.id}>
        {title(view)}
      </span>
      <span className="fd-facts">{facts.filter(Boolean).join(" · ")}</span>
      <button type="button" className="fd-stop" disabled={view.ended || orphaned || stopping} onClick={stop}>
        {stopping ? trans.__("Stopping…") : trans.__("Stop")}
      </button>
    </div>
  );
}

function Logs({ ranks }: { ranks: readonly RankRow[] }): JSX.Element {
  const trans = useTranslator();
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

/** Render the dashboard into an element. Return a function that removes the dashboard again. */
function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const root = createRoot(el);
  const set: Model["set"] = (name, value) => {
    follower.model.set(name, value);
    follower.model.save_changes();
    update();
  };
  const update = () => {
    const view = follower.model.get("view");
    const orphaned = follower.orphaned && !view.ended;
    if (view.id) root.render(<Dashboard model={follower.model} view={view as RunView} orphaned={orphaned} set={set} />);
  };
  const follower = new Follower(model, update);
  update();
  return () => {
    follower.close();
    root.unmount();
  };
}

export default { initialize, render };
