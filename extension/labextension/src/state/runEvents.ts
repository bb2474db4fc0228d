/** Finds the events of runs of which the user is notified. Only runs that are active while the page is open count. */

import type { FollowedMessage, RunSummary } from "../wire";
import type { PanelState } from "./reducer";

export type RunEventKind = "ended" | "failed" | "hung" | "nan";

/** An event of a run. `series` contains the names of the metrics that are NaN or infinite. */
export interface RunEvent {
  readonly kind: RunEventKind;
  readonly run: RunSummary;
  readonly series: readonly string[];
}

/**
 * How much one update can add to the time without activity. Browsers call timers of hidden pages once a minute. The
 * limit excludes the time during which the computer was suspended.
 */
const MOST_QUIET_MS = 120_000;

interface FollowedRun {
  /** Counts of NaN and infinite values by series. Null until the first news of a run that is older than the page. */
  bad: ReadonlyMap<string, number> | null;
  message: FollowedMessage | null;
  quietMs: number;
}

export class RunFollower {
  /** The ids of the runs whose news are needed. */
  get ids(): string[] {
    return [...this.followed.keys()];
  }

  /** Return the events since the last update. Each kind of event is returned once for each run. */
  update(state: PanelState, hungMinutes: number, now: number): RunEvent[] {
    const passed = state.connection === "open" ? Math.min(Math.max(0, now - this.updatedAt), MOST_QUIET_MS) : 0;
    this.updatedAt = now;
    if (!state.runs) return [];
    const listed = new Map(state.runs.map((run) => [run.id, run]));
    const listsAll = state.runs.length >= state.total;
    this.follow(state.runs);
    const events: RunEvent[] = [];
    for (const [id, followed] of this.followed) {
      // The list of the newest runs may omit an older run that has ended, whose news then contain the end.
      const run = listed.get(id) ?? (listsAll ? undefined : state.followed[id]?.summary);
      if (run) events.push(...eventsOf(run, followed, state.followed[id], passed, hungMinutes));
      // The last values of a run arrive after its end. A run without a summary was deleted.
      if (!run || (!run.goes_on && followed.message?.summary.goes_on === false)) this.followed.delete(id);
    }
    return events.filter((event) => this.isFirst(event));
  }

  /** Follow the active runs, and runs that have started and ended since the last update. */
  private follow(runs: readonly RunSummary[]): void {
    for (const run of runs) {
      const isNew = run.started > (this.newest ?? Infinity);
      if (this.followed.has(run.id) || !(run.goes_on || (isNew && run.status !== "lost"))) continue;
      this.followed.set(run.id, { bad: isNew ? new Map() : null, message: null, quietMs: 0 });
    }
    this.newest = Math.max(this.newest ?? 0, ...runs.map((run) => run.started));
  }

  private isFirst({ run, kind }: RunEvent): boolean {
    const key = `${run.id} ${kind}`;
    const first = !this.returned.has(key);
    this.returned.add(key);
    return first;
  }

  private readonly followed = new Map<string, FollowedRun>();
  private readonly returned = new Set<string>();
  private newest: number | null = null;
  private updatedAt = 0;
}

/** Return the events of one run, and record its latest news in `followed`. */
function eventsOf(
  run: RunSummary,
  followed: FollowedRun,
  message: FollowedMessage | undefined,
  passed: number,
  hungMinutes: number,
): RunEvent[] {
  const event = (kind: RunEventKind, series: readonly string[] = []): RunEvent => ({ kind, run, series });
  const events: RunEvent[] = [];
  if (followed.message) followed.quietMs += passed;
  if (message && message !== followed.message) {
    const series = record(followed, message);
    if (series.length) events.push(event("nan", series));
  }
  // There are no news of a run without a driver, although its ranks continue.
  if (run.status === "running" && followed.quietMs >= hungMinutes * 60_000) events.push(event("hung"));
  if (!run.goes_on) events.push(event(run.status === "failed" || run.status === "lost" ? "failed" : "ended"));
  return events;
}

/** Record news, and return the names of the series that have more NaN or infinite values than before. */
function record(followed: FollowedRun, message: FollowedMessage): string[] {
  const { bad } = followed;
  const counts = Object.entries(message.bad);
  if (message.activity !== followed.message?.activity) followed.quietMs = 0;
  followed.bad = new Map(counts);
  followed.message = message;
  return bad ? counts.filter(([name, count]) => count > (bad.get(name) ?? 0)).map(([name]) => name) : [];
}
