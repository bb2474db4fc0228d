/** Computes what the page says about a cluster as a whole. */

import type { Cluster } from "../wire";

/** Return whether the cluster has ranks that are alive, or ranks that are dead. */
export function hasRanks(cluster: Cluster, alive: boolean): boolean {
  return cluster.workers.some(({ ranks }) => ranks.some((rank) => rank.alive === alive));
}

/** Return the state that the page shows. A cluster is not ready if all of its ranks are dead. */
export function shownState(cluster: Cluster): string {
  const dead = hasRanks(cluster, false) && !hasRanks(cluster, true);
  return cluster.state === "ready" && dead ? "dead" : cluster.state;
}
