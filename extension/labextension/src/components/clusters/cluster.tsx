/** Shows a cluster, its workers, and buttons to scale and stop it. */

import { useId, useRef, useState, type FormEvent, type JSX } from "react";

import { basename } from "../../format";
import { RequestError } from "../../net/requestError";
import { hasRanks, holdsVariables, shownState } from "../../state/clusters";
import { count } from "../../state/forms";
import type { Cluster } from "../../wire";
import { usePanelContext } from "../context";
import { Note, Status } from "../parts";
import { DaskLine } from "./dask";
import { WorkerItem } from "./worker";

/** If a cluster has more workers than this, each worker is collapsed to one line until the user expands it. */
const FEW_WORKERS = 8;

export function ClusterCard({ cluster }: { cluster: Cluster }): JSX.Element {
  const { trans } = usePanelContext();
  return (
    <section className="fd-cluster" aria-label={trans.__("Cluster %1", cluster.name)}>
      <div className="fd-row">
        <h3 className="fd-title">{cluster.name}</h3>
        <Status of={shownState(cluster)} />
      </div>
      <Facts cluster={cluster} />
      {cluster.dask && <DaskLine cluster={cluster} dask={cluster.dask} />}
      {cluster.error && <Note error>{cluster.error}</Note>}
      {cluster.notice && <Note info={!hasRanks(cluster, false)}>{cluster.notice}</Note>}
      <Buttons cluster={cluster} />
      {cluster.workers.length > 0 && (
        <ul className="fd-workers" aria-label={trans.__("Workers of %1", cluster.name)}>
          {cluster.workers.map((worker) => (
            <WorkerItem key={worker.name} worker={worker} brief={cluster.workers.length > FEW_WORKERS} />
          ))}
        </ul>
      )}
    </section>
  );
}

function Facts({ cluster }: { cluster: Cluster }): JSX.Element {
  const { trans, openNotebook } = usePanelContext();
  const { size, wanted, lead } = cluster;
  const workers = cluster.workers.length;
  const facts = [
    cluster.profile,
    cluster.backend,
    trans._n("%1 worker", "%1 workers", workers),
    size === null ? null : trans._n("%1 rank", "%1 ranks", size),
    wanted === null ? null : trans._n("%1 worker wanted", "%1 workers wanted", wanted),
    cluster.local ? trans.__("on this machine") : null,
  ];
  return (
    <div className="fd-facts">
      {facts.filter(Boolean).join(" · ")}
      {lead?.notebook && (
        <>
          {" · "}
          <button type="button" className="fd-link" title={lead.notebook} onClick={() => openNotebook(lead)}>
            {trans.__("led by %1", basename(lead.notebook))}
          </button>
        </>
      )}
    </div>
  );
}

function Buttons({ cluster }: { cluster: Cluster }): JSX.Element {
  const { trans } = usePanelContext();
  const [scaling, setScaling] = useState(false);
  const opener = useRef<HTMLButtonElement>(null);
  const stop = useStop(cluster);
  const done = () => {
    setScaling(false);
    opener.current?.focus();
  };
  const failed = cluster.state === "failed";
  return (
    <>
      <div className="fd-row">
        {cluster.state === "ready" && (
          <button
            ref={opener}
            type="button"
            aria-expanded={scaling}
            aria-label={trans.__("Scale %1", cluster.name)}
            onClick={() => setScaling(!scaling)}
          >
            {trans.__("Scale")}
          </button>
        )}
        <button
          type="button"
          className={failed ? "" : "fd-stop"}
          disabled={cluster.state === "stopping"}
          aria-label={failed ? trans.__("Dismiss %1", cluster.name) : trans.__("Stop %1", cluster.name)}
          onClick={() => void stop()}
        >
          {failed ? trans.__("Dismiss") : trans.__("Stop")}
        </button>
      </div>
      {scaling && <Scale cluster={cluster} onDone={done} />}
    </>
  );
}

/** Return a function that stops a cluster. If a run or variables would be lost, the function asks the user first. */
function useStop(cluster: Cluster): () => Promise<void> {
  const { model, trans, confirm } = usePanelContext();
  const ask = () =>
    confirm(
      trans.__("Stop cluster %1?", cluster.name),
      trans.__("A run is active on this cluster and stops too. Its metrics and logs are kept."),
      trans.__("Stop both"),
    );
  const askForVariables = () =>
    confirm(
      trans.__("Stop cluster %1?", cluster.name),
      holdsVariables(cluster)
        ? trans.__("Its ranks and the variables on them are lost.")
        : trans.__("No kernel leads it now. Its ranks may hold variables of a notebook, which are lost."),
      trans.__("Stop"),
    );
  return async () => {
    await model.attempt(async () => {
      if (cluster.runs.length) return (await ask()) ? model.api.stopCluster(cluster.name, true) : null;
      if (holdsVariables(cluster) !== false && !(await askForVariables())) return null;
      try {
        return await model.api.stopCluster(cluster.name, false);
      } catch (error) {
        // The server refuses the request if a run has started since this page was last updated.
        if (!(error instanceof RequestError && error.problem.code === "runs_go_on")) throw error;
        return (await ask()) ? model.api.stopCluster(cluster.name, true) : null;
      }
    });
  };
}

function Scale({ cluster, onDone }: { cluster: Cluster; onDone: () => void }): JSX.Element {
  const { model, trans, confirm } = usePanelContext();
  const [text, setText] = useState(String(cluster.wanted ?? cluster.workers.length));
  const id = useId();
  const workers = count(text);
  const ask = () =>
    confirm(
      trans.__("Scale cluster %1 down?", cluster.name),
      holdsVariables(cluster)
        ? trans.__("The ranks of the workers that stop are lost, and the variables on them.")
        : trans.__("No kernel leads it now. The workers that stop may hold variables of a notebook, which are lost."),
      trans.__("Scale"),
    );
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (workers === null) return;
    const losesRanks = workers < cluster.workers.length && holdsVariables(cluster) !== false;
    if (losesRanks && !(await ask())) return;
    const done = await model.attempt(() => model.api.scaleCluster(cluster.name, { workers }));
    if (done) onDone();
  };
  return (
    <form className="fd-row" aria-label={trans.__("Scale %1", cluster.name)} onSubmit={(event) => void submit(event)}>
      <label htmlFor={id}>{trans.__("Workers")}</label>
      <input id={id} type="number" min={1} value={text} onChange={(event) => setText(event.target.value)} />
      <button type="submit" disabled={workers === null}>
        {trans.__("Apply")}
      </button>
    </form>
  );
}
