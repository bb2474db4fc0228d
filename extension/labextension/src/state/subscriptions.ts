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
  /** Runs of which only the news are received. */
  readonly followed?: readonly string[];
  readonly byRank?: boolean;
  readonly logs?: readonly LogRequest[];
}

/**
 * Merge all subscriptions. If a part of a log is known, only the rest of the log is requested. If there are too many runs,
 * only the newest ones are requested.
 */
export function watchOf(subscriptions: Iterable<Subscription>, logs: Readonly<Record<string, Log>>): Watch {
  const all = [...subscriptions];
  const wanted = new Map(all.flatMap((one) => one.logs ?? []).map((log) => [logKey(log), log]));
  return {
    kind: "watch",
    seen: all.some((one) => one.seen),
    runs: newest(
      all.flatMap((one) => one.runs ?? []),
      MOST_SUBSCRIPTIONS - wanted.size,
    ),
    followed: newest(
      all.flatMap((one) => one.followed ?? []),
      MOST_SUBSCRIPTIONS,
    ),
    by_rank: all.some((one) => one.byRank),
    logs: [...wanted].map(([key, log]) => ({ ...log, offset: logs[key]?.next ?? log.offset })),
  };
}

/** Return the ids of the newest runs in ascending order. Ids of runs begin with the time. */
function newest(runs: readonly string[], most: number): string[] {
  const ids = [...new Set(runs)].sort();
  return ids.slice(Math.max(0, ids.length - Math.max(0, most)));
}

/** Return the ids of the runs and the keys of the logs to which the page no longer subscribes. */
export function dropped(before: Watch, after: Watch): { runs: string[]; followed: string[]; logs: string[] } {
  const logs = new Set(after.logs.map(logKey));
  return {
    runs: before.runs.filter((run) => !after.runs.includes(run)),
    followed: before.followed.filter((run) => !after.followed.includes(run)),
    logs: before.logs.map(logKey).filter((key) => !logs.has(key)),
  };
}

/** Return whether two messages subscribe to the same runs and logs. Offsets in the logs are ignored. */
export function isSame(one: Watch, other: Watch): boolean {
  const key = ({ seen, runs, followed, by_rank, logs }: Watch) =>
    JSON.stringify([seen, runs, followed, by_rank, logs.map(logKey)]);
  return key(one) === key(other);
}
