/** Computes what the status bar shows. */

import { bytes, gpuMemory, title } from "../format";
import type { Cluster, RunSummary } from "../wire";

/** The values in the status bar. A value that is null is not shown. */
export interface Facts {
  readonly ranks: number;
  readonly starting: boolean;
  readonly dead: number;
  readonly run: string | null;
  readonly gpu: string | null;
}

/** Return the values for all clusters and active runs. Ranks and GPU memory are counted in ready clusters only. */
export function factsOf(clusters: readonly Cluster[], running: readonly RunSummary[]): Facts {
  const ready = clusters.filter((cluster) => cluster.state === "ready");
  const workers = ready.flatMap((cluster) => cluster.workers);
  const memory = gpuMemory(workers.flatMap((worker) => worker.usage?.gpus ?? []));
  const run = running[0];
  return {
    ranks: ready.reduce((sum, cluster) => sum + (cluster.size ?? 0), 0),
    starting: clusters.some((cluster) => cluster.state === "starting"),
    dead: workers.flatMap((worker) => worker.ranks).filter((rank) => !rank.alive).length,
    run: run ? `${title(run)}${running.length > 1 ? ` +${running.length - 1}` : ""}` : null,
    gpu: memory === null ? null : bytes(memory),
  };
}
