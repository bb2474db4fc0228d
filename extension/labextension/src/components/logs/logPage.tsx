/** The log of a run in a tab of JupyterLab's main area. */

import type { JSX } from "react";

import { usePanelContext } from "../context";
import { Empty } from "../parts";
import { useStoredRun } from "../runs/useStoredRun";
import { FullLog } from "./fullLog";

export function LogPage({ id, rank }: { id: string; rank: number }): JSX.Element {
  const { trans } = usePanelContext();
  const run = useStoredRun(id, false);
  if (!run) return <Empty title={trans.__("Waiting for run %1…", id)} />;
  const ranks = run.view.ranks.map((row) => row.rank);
  return <FullLog key={rank} id={id} ranks={ranks} started={run.summary.started} rank={rank} />;
}
