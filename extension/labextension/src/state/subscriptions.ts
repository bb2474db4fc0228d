/** The subscriptions of all components, merged into the one `Watch` that the page sends to the server. */

import type { LogRequest, Watch } from "../wire";
import { logKey, type Log } from "./logs";

/** What one component watches. */
export interface Subscription {
  /** Set by the panel itself while it is visible. */
  readonly seen?: boolean;
  readonly runs?: readonly string[];
  readonly byRank?: boolean;
  readonly logs?: readonly LogRequest[];
}

/** Return all subscriptions as one; a log that is partly known is requested from its known end. */
export function watchOf(subscriptions: Iterable<Subscription>, logs: Readonly<Record<string, Log>>): Watch {
  const all = [...subscriptions];
  const wanted = new Map(all.flatMap((one) => one.logs ?? []).map((log) => [logKey(log), log]));
  return {
    kind: "watch",
    seen: all.some((one) => one.seen),
    runs: [...new Set(all.flatMap((one) => one.runs ?? []))].sort(),
    by_rank: all.some((one) => one.byRank),
    logs: [...wanted].map(([key, log]) => ({ ...log, offset: logs[key]?.next ?? log.offset })),
  };
}

/** Return what the page no longer watches: ids of runs and keys of logs. */
export function dropped(before: Watch, after: Watch): { runs: string[]; logs: string[] } {
  const logs = new Set(after.logs.map(logKey));
  return {
    runs: before.runs.filter((run) => !after.runs.includes(run)),
    logs: before.logs.map(logKey).filter((key) => !logs.has(key)),
  };
}

/** Return whether two watches name the same runs and logs; offsets in logs do not count. */
export function isSame(one: Watch, other: Watch): boolean {
  const key = (watch: Watch) => JSON.stringify([watch.seen, watch.runs, watch.by_rank, watch.logs.map(logKey)]);
  return key(one) === key(other);
}
