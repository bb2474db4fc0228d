/** Finds the clusters that a notebook leads, and its cells with active runs. */

import type { Cluster, Lead, RunSummary } from "../wire";

/** The path of an open notebook and the id of its kernel, which is empty if the notebook has no kernel. */
export interface OpenNotebook {
  readonly path: string;
  readonly kernel: string;
}

/**
 * The notebook that started a run or leads a cluster.
 *
 * `notebook` is its path when the kernel was started. A notebook that is renamed later still has the same kernel.
 */
export type Origin = Pick<Lead, "notebook" | "kernel">;

/** Return whether a notebook may have started a run. An equal path is enough, as the notebook may have a new kernel. */
function isOf(run: Origin, { path, kernel }: OpenNotebook): boolean {
  return (kernel !== "" && run.kernel === kernel) || (path !== "" && run.notebook === path);
}

/**
 * Return whether a notebook leads a cluster.
 *
 * The kernel that leads a cluster is alive, so the paths are compared only if one of the kernels is unknown.
 */
function leads(lead: Origin, { path, kernel }: OpenNotebook): boolean {
  return lead.kernel && kernel ? lead.kernel === kernel : path !== "" && lead.notebook === path;
}

/** Return the newest active run of each cell in a notebook, keyed by the id of the cell. */
export function runningCells(runs: readonly RunSummary[], opened: OpenNotebook): Map<string, RunSummary> {
  const found = new Map<string, RunSummary>();
  for (const run of runs) {
    if (!run.goes_on || !run.cell || !isOf(run, opened)) continue;
    const other = found.get(run.cell);
    if (!other || other.started < run.started) found.set(run.cell, run);
  }
  return found;
}

/** Return the given clusters that a notebook leads. */
export function ledBy(clusters: readonly Cluster[], opened: OpenNotebook): Cluster[] {
  return clusters.filter((cluster) => cluster.lead && leads(cluster.lead, opened));
}
