/** Which cells of a notebook have a run that goes on. */

import type { Cluster, RunSummary } from "./wire";

/** Whether a recorded path and one that the page knows are of the same notebook; the recorded one may be absolute. */
export function sameNotebook(recorded: string, path: string): boolean {
  return recorded !== "" && path !== "" && (recorded === path || recorded.endsWith(`/${path}`));
}

/** Return the newest run that goes on of each cell of a notebook, by the cell's id. */
export function runningCells(runs: readonly RunSummary[], path: string): Map<string, RunSummary> {
  const found = new Map<string, RunSummary>();
  for (const run of runs) {
    if (!run.goes_on || !run.cell || !sameNotebook(run.notebook, path)) continue;
    const other = found.get(run.cell);
    if (!other || other.started < run.started) found.set(run.cell, run);
  }
  return found;
}

/** Return the clusters that a notebook leads. */
export function ledBy(clusters: readonly Cluster[], path: string): Cluster[] {
  return clusters.filter((cluster) => cluster.lead && sameNotebook(cluster.lead.notebook, path));
}
