/** Merges the subscriptions of all components into one `Watch` message, which the page sends to the server. */

import type { LogRequest, Watch } from "../wire";
import { logKey, type Log } from "./logs";

/** The number of runs and logs to which the server lets a page subscribe. */
export const MOST_SUBSCRIPTIONS = 50;

/** What one component wants to receive from the server. */
export interface Subscription {
  /** True if the panel is visible. */
  readonly seen?: boolean;
  readonly runs?: readonly string[];
  readonly byRank?: boolean;
  readonly logs?: readonly LogRequest[];
}

/**
 * Merge all subscriptions. If a part of a log is known, only the rest of the log is requested. If there are too many runs,
 * only the newest ones are requested. Ids of runs begin with the time.
 */
export function watchOf(subscriptions: Iterable<Subscription>, logs: Readonly<Record<string, Log>>): Watch {
  const all = [...subscriptions];
  const wanted = new Map(all.flatMap((one) => one.logs ?? []).map((log) => [logKey(log), log]));
  const runs = [...new Set(all.flatMap((one) => one.runs ?? []))].sort();
  const room = Math.max(0, MOST_SUBSCRIPTIONS - wanted.size);
  return {
    kind: "watch",
    seen: all.some((one) => one.seen),
    runs: runs.slice(Math.max(0, runs.length - room)),
    by_rank: all.some((one) => one.byRank),
    logs: [...wanted].map(([key, log]) => ({ ...log, offset: logs[key]?.next ?? log.offset })),
  };
}

/** Return the ids of the runs and the keys of the logs to which the page no longer subscribes. */
export function dropped(before: Watch, after: Watch): { runs: string[]; logs: string[] } {
  const logs = new Set(after.logs.map(logKey));
  return {
    runs: before.runs.filter((run) => !after.runs.includes(run)),
    logs: before.logs.map(logKey).filter((key) => !logs.has(key)),
  };
}

/** Return whether two messages subscribe to the same runs and logs. Offsets in the logs are ignored. */
export function isSame(one: Watch, other: Watch): boolean {
  const key = (watch: Watch) => JSON.stringify([watch.seen, watch.runs, watch.by_rank, watch.logs.map(logKey)]);
  return key(one) === key(other);
}
