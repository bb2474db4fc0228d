/**
 * The dashboard of a run, which is the front end of an anywidget.
 *
 * The kernel sets the trait `view` (see runs/view.py). The traits `per_rank`, `log_scale` and `stopping` contain the
 * user's choices.
 */

import { useState, type JSX } from "react";
import { createRoot } from "react-dom/client";

import { RankTable } from "./components/runs/rankTable";
import { Reports } from "./components/runs/reports";
import { duration, number, title } from "./format";
import { useTranslator } from "./i18n";
import type { RankRow, RunView } from "./wire";

interface Traits {
  view: Partial<RunView>;
  per_rank: boolean;
  log_scale: string[];
  stopping: boolean;
  shown: boolean;
}

/** The methods of anywidget's model that the dashboard uses. */
interface Model {
  get<Name extends keyof Traits>(name: Name): Traits[Name];
  set<Name extends keyof Traits>(name: Name, value: Traits[Name]): void;
  save_changes(): void;
  send(message: unknown): void;
  on(event: string, callback: () => void): void;
  off(event: string, callback: () => void): void;
}

const EVENTS = ["change:view", "change:per_rank", "change:log_scale", "change:stopping"];

interface Props {
  model: Model;
  view: RunView;
  set: Model["set"];
}

function Dashboard({ model, view, set }: Props): JSX.Element {
  const trans = useTranslator();
  return (
    <section className="fd" aria-label={trans.__("Training run")}>
      <div className="fd-card">
        <Head model={model} view={view} />
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

function Head({ model, view }: Omit<Props, "set">): JSX.Element {
  const trans = useTranslator();
  // The kernel confirms the request with the trait `stopping`, but a busy kernel may take a while to do so.
  const [pressed, setPressed] = useState(false);
  const stopping = (pressed || model.get("stopping")) && !view.ended;
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
      <span className="fd-status" role="status" data-status={view.status}>
        {stopping ? trans.__("stopping") : view.status}
      </span>
      <span className="fd-title" title={view.id}>
        {title(view)}
      </span>
      <span className="fd-facts">{facts.filter(Boolean).join(" · ")}</span>
      <button type="button" className="fd-stop" disabled={view.ended || stopping} onClick={stop}>
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
    model.set(name, value);
    model.save_changes();
    update();
  };
  const update = () => {
    const view = model.get("view");
    if (view.id) root.render(<Dashboard model={model} view={view as RunView} set={set} />);
  };
  for (const event of EVENTS) model.on(event, update);
  // The kernel prints lines of progress for clients that show no dashboard. Messages that the page sends before it has
  // opened a subshell wait until the cell has ended, so the page repeats its message less and less often.
  let changes = 0;
  const confirm = () => {
    changes += 1;
    if (!model.get("shown") && Number.isInteger(Math.log2(changes))) model.send({ type: "shown" });
  };
  model.on("change:view", confirm);
  update();
  return () => {
    model.off("change:view", confirm);
    for (const event of EVENTS) model.off(event, update);
    root.unmount();
  };
}

export default { render };
