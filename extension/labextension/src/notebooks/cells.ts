/** The runs and clusters of a notebook, and its cells with active runs. */

import type { Cluster, Lead, RunSummary } from "../wire";

/** An open notebook: its path, and the id of its kernel, empty without a kernel. */
export interface OpenNotebook {
  readonly path: string;
  readonly kernel: string;
}

/** The notebook that code came from: its path when its kernel started, and the kernel, which a renamed notebook keeps. */
export type Origin = Pick<Lead, "notebook" | "kernel">;

/** Return whether a run may belong to a notebook. The path is enough, because the kernel may have been restarted. */
function isOf(run: Origin, { path, kernel }: OpenNotebook): boolean {
  return (kernel !== "" && run.kernel === kernel) || (path !== "" && run.notebook === path);
}

/** Return whether a notebook leads a cluster. Leading kernels are alive, so the path counts only if a kernel is unknown. */
function leads(lead: Origin, { path, kernel }: OpenNotebook): boolean {
  return lead.kernel && kernel ? lead.kernel === kernel : path !== "" && lead.notebook === path;
}

/** Return the newest active run of each cell of a notebook, by the id of the cell. */
export function runningCells(runs: readonly RunSummary[], opened: OpenNotebook): Map<string, RunSummary> {
  const found = new Map<string, RunSummary>();
  for (const run of runs) {
    if (!run.goes_on || !run.cell || !isOf(run, opened)) continue;
    const other = found.get(run.cell);
    if (!other || other.started < run.started) found.set(run.cell, run);
  }
  return found;
}

/** Return the clusters that a notebook leads. */
export function ledBy(clusters: readonly Cluster[], opened: OpenNotebook): Cluster[] {
  return clusters.filter((cluster) => cluster.lead && leads(cluster.lead, opened));
}
