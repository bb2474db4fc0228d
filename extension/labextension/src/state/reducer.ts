/** The state of the page, and how a message of the stream changes it. */

import type { ConnectionState } from "../net/stream";
import type { Cluster, Hub, Message, Problem, Resources, RunMessage, RunSummary } from "../wire";
import { append, logKey, type Log } from "./logs";

/** Why there is no stream: the status of an HTTP answer, 0 if there was none. */
export interface ConnectionFailure {
  readonly status: number;
  readonly message: string;
}

export interface PanelState {
  readonly connection: ConnectionState;
  readonly failure: ConnectionFailure | null;
  readonly hub: Hub | null;
  /** Null until the server has sent them. */
  readonly clusters: readonly Cluster[] | null;
  readonly resources: Resources | null;
  readonly runs: readonly RunSummary[] | null;
  readonly total: number;
  /** When the runs arrived, in milliseconds; active runs have become longer since. */
  readonly receivedAt: number;
  readonly views: Readonly<Record<string, RunMessage>>;
  readonly logs: Readonly<Record<string, Log>>;
  readonly problems: readonly Problem[];
}

export const EMPTY: PanelState = {
  connection: "opening",
  failure: null,
  hub: null,
  clusters: null,
  resources: null,
  runs: null,
  total: 0,
  receivedAt: 0,
  views: {},
  logs: {},
  problems: [],
};

/** Return the state after a message. Each kind replaces the last message of its kind; logs are appended. */
export function reduce(state: PanelState, message: Message, now: number): PanelState {
  switch (message.kind) {
    case "clusters":
      return { ...state, hub: message.hub, clusters: message.clusters };
    case "resources":
      return { ...state, resources: message.resources };
    case "runs":
      return { ...state, runs: message.runs, total: message.total, receivedAt: now };
    case "run":
      return { ...state, views: { ...state.views, [message.id]: message } };
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

/** Return the state with a problem to show; equal problems are shown once. */
export function withProblem(state: PanelState, problem: Problem): PanelState {
  const others = state.problems.filter((other) => other.message !== problem.message);
  return { ...state, problems: [...others, problem].slice(-3) };
}

/** Return the state without runs and logs that no component watches any more. */
export function forget(state: PanelState, runs: readonly string[], logs: readonly string[]): PanelState {
  const without = <T>(record: Readonly<Record<string, T>>, gone: readonly string[]) =>
    Object.fromEntries(Object.entries(record).filter(([key]) => !gone.includes(key)));
  return { ...state, views: without(state.views, runs), logs: without(state.logs, logs) };
}

/** Return the newest summary of a run. */
export function runOf(state: PanelState, id: string): RunSummary | undefined {
  return state.runs?.find((run) => run.id === id) ?? state.views[id]?.summary;
}

/** Return how long a run has taken; between messages, the page itself counts the seconds of an active run. */
export function elapsedSeconds(run: RunSummary, state: PanelState, now: number): number {
  return run.goes_on ? run.seconds + Math.max(0, now - state.receivedAt) / 1000 : run.seconds;
}

/** Return the active runs, the newest first. */
export function activeRuns(state: PanelState): RunSummary[] {
  return (state.runs ?? []).filter((run) => run.goes_on);
}
