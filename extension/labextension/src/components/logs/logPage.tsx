/** The log of a run in a tab of JupyterLab's main area. */

import { useCallback, type JSX } from "react";

import { title } from "../../format";
import { runOf } from "../../state/reducer";
import { usePanelContext, usePanelState } from "../context";
import { Empty } from "../parts";
import { useStoredRun } from "../runs/useStoredRun";
import { FullLog } from "./fullLog";

interface Props {
  id: string;
  rank: number;
  /** Called with the title of the tab. */
  setTitle: (title: string) => void;
}

export function LogPage({ id, rank, setTitle }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const run = useStoredRun(id, false);
  // The user may rename the run.
  const name = title(runOf(usePanelState(), id) ?? run?.summary ?? { id, name: "" });
  const onRank = useCallback(
    (shown: number) => setTitle(trans.__("Log of %1, rank %2", name, shown)),
    [setTitle, trans, name],
  );
  if (!run) return <Empty title={trans.__("Waiting for run %1…", id)} />;
  const ranks = run.view.ranks.map((row) => row.rank);
  return <FullLog key={rank} id={id} ranks={ranks} started={run.summary.started} rank={rank} onRank={onRank} />;
}
