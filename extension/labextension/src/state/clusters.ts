/** Computes what the page says about a cluster as a whole. */

import type { Cluster } from "../wire";

/** Return whether the cluster has ranks that are alive, or ranks that are dead. */
export function hasRanks(cluster: Cluster, alive: boolean): boolean {
  return cluster.workers.some(({ ranks }) => ranks.some((rank) => rank.alive === alive));
}

/**
 * Return whether the ranks of a cluster hold variables, or null if this is unknown.
 *
 * Only a kernel that leads the cluster knows its ranks. After this kernel has restarted, the ranks keep their variables.
 */
export function holdsVariables(cluster: Cluster): boolean | null {
  if (hasRanks(cluster, true)) return true;
  return cluster.state !== "ready" || hasRanks(cluster, false) ? false : null;
}

/** Return the state that the page shows. A cluster is not ready if all of its ranks are dead. */
export function shownState(cluster: Cluster): string {
  const dead = hasRanks(cluster, false) && !hasRanks(cluster, true);
  return cluster.state === "ready" && dead ? "dead" : cluster.state;
}
