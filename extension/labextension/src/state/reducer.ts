/** The state of the page, and the functions that compute the next state after a message from the server. */

import type { ConnectionState } from "../net/stream";
import type {
  Cluster,
  Endpoint,
  FollowedMessage,
  Hub,
  Message,
  Problem,
  Resources,
  RunMessage,
  RunSummary,
} from "../wire";
import { append, logKey, type Log } from "./logs";
import type { dropped } from "./subscriptions";

/** Why the connection failed. `status` is the status of the HTTP response, or 0 if there was no response. */
export interface ConnectionFailure {
  readonly status: number;
  readonly message: string;
}

export interface PanelState {
  readonly connection: ConnectionState;
  readonly failure: ConnectionFailure | null;
  readonly hub: Hub | null;
  /** Null until the server has sent the clusters. The same applies to `endpoints`, `resources` and `runs`. */
  readonly clusters: readonly Cluster[] | null;
  readonly endpoints: readonly Endpoint[] | null;
  readonly resources: Resources | null;
  readonly runs: readonly RunSummary[] | null;
  readonly total: number;
  /** When `runs` arrived, in milliseconds since the epoch. The durations of active runs have grown since that time. */
  readonly receivedAt: number;
  readonly views: Readonly<Record<string, RunMessage>>;
  /** The last news of each run that the page follows. */
  readonly followed: Readonly<Record<string, FollowedMessage>>;
  readonly logs: Readonly<Record<string, Log>>;
  readonly problems: readonly Problem[];
}

export const EMPTY: PanelState = {
  connection: "opening",
  failure: null,
  hub: null,
  clusters: null,
  endpoints: null,
  resources: null,
  runs: null,
  total: 0,
  receivedAt: 0,
  views: {},
  followed: {},
  logs: {},
  problems: [],
};

/** Return the state after a message. Log parts and problems are added; other messages replace earlier values. */
export function reduce(state: PanelState, message: Message, now: number): PanelState {
  switch (message.kind) {
    case "clusters":
      return { ...state, hub: message.hub, clusters: message.clusters };
    case "endpoints":
      return { ...state, endpoints: message.endpoints };
    case "resources":
      return { ...state, resources: message.resources };
    case "runs":
      return { ...state, runs: message.runs, total: message.total, receivedAt: now };
    case "run":
      return { ...state, views: { ...state.views, [message.id]: message } };
    case "followed":
      return { ...state, followed: { ...state.followed, [message.id]: message } };
    case "log": {
      const key = logKey(message.part);
      return { ...state, logs: { ...state.logs, [key]: append(state.logs[key], message.part) } };
    }
    case "problem":
      return withProblem(state, message.problem);
    case "beat":
      return state;
  }
}

/** Add a problem to the state, which keeps the last three problems with different messages. */
export function withProblem(state: PanelState, problem: Problem): PanelState {
  const others = state.problems.filter((other) => other.message !== problem.message);
  return { ...state, problems: [...others, problem].slice(-3) };
}

/** Remove runs and logs to which no component subscribes any more. */
export function forget(state: PanelState, { runs, followed, logs }: ReturnType<typeof dropped>): PanelState {
  const without = <T>(record: Readonly<Record<string, T>>, gone: readonly string[]) =>
    Object.fromEntries(Object.entries(record).filter(([key]) => !gone.includes(key)));
  return {
    ...state,
    views: without(state.views, runs),
    followed: without(state.followed, followed),
    logs: without(state.logs, logs),
  };
}

/** Return false until the server and the hub have answered and while one of them is down: there may be other clusters. */
export function isKnown({ connection, clusters, hub }: PanelState): boolean {
  return connection !== "lost" && clusters !== null && !hub?.error;
}

/** Return whether the server answers, but the hub does not. */
export function isHubAway({ connection, hub }: PanelState): boolean {
  return connection !== "lost" && Boolean(hub?.error);
}

/** Return the latest summary of a run. */
export function runOf(state: PanelState, id: string): RunSummary | undefined {
  return state.runs?.find((run) => run.id === id) ?? state.views[id]?.summary;
}

/** Return the duration of a run in seconds. For an active run, add the time since the list of runs arrived. */
export function elapsedSeconds(run: RunSummary, state: PanelState, now: number): number {
  return run.goes_on ? run.seconds + Math.max(0, now - state.receivedAt) / 1000 : run.seconds;
}

/** Return the active runs, newest first. */
export function activeRuns(state: PanelState): RunSummary[] {
  return (state.runs ?? []).filter((run) => run.goes_on);
}
