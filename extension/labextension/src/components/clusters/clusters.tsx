/** The tab "Clusters" of the panel. */

import { useState, type JSX } from "react";

import { isHubAway, isKnown } from "../../state/reducer";
import { usePanelContext, usePanelState } from "../context";
import { Empty } from "../parts";
import { ClusterCard } from "./cluster";
import { StartForm } from "./start";

interface Props {
  starting: boolean;
  setStarting: (starting: boolean) => void;
}

export function Clusters({ starting, setStarting }: Props): JSX.Element {
  const { trans, insertTraining } = usePanelContext();
  const { clusters, resources, hub } = usePanelState();
  // When the form is closed, the focus returns to the button that opened the form.
  const [closed, setClosed] = useState(false);
  if (!clusters || !resources) return <Empty title={trans.__("Loading…")} />;
  const ready = clusters.some((cluster) => cluster.state === "ready");
  const form = starting && hub !== null;
  const close = () => {
    setClosed(true);
    setStarting(false);
  };
  return (
    <>
      {form && <StartForm resources={resources} clusters={clusters} onDone={close} />}
      {!form && !clusters.length && <NoCluster />}
      <div className="fd-row">
        {hub && !form && (
          <button type="button" className="fd-main" autoFocus={closed} onClick={() => setStarting(true)}>
            {trans.__("Start a cluster")}
          </button>
        )}
        {(ready || !form) && (
          <button type="button" onClick={insertTraining}>
            {trans.__("Insert training cell")}
          </button>
        )}
      </div>
      {clusters.map((cluster) => (
        <ClusterCard key={cluster.name} cluster={cluster} />
      ))}
    </>
  );
}

/** Says that there is no cluster, unless the server or the hub is down, as there may be clusters then. */
function NoCluster(): JSX.Element {
  const { trans } = usePanelContext();
  const state = usePanelState();
  const { hub } = state;
  if (isHubAway(state)) return <Empty title={trans.__("The clusters are unknown until the hub answers")} />;
  if (!isKnown(state)) return <Empty title={trans.__("The clusters are unknown until the server answers")} />;
  return (
    <Empty title={trans.__("No cluster yet")}>
      <p>
        {hub
          ? trans.__("Start one: its workers appear here. Then insert a training cell into a notebook and run it.")
          : trans.__("There is no hub. Insert a training cell: its cluster starts on this machine.")}
      </p>
    </Empty>
  );
}
