import { parse } from "../../src/net/stream";
import {
  EMPTY,
  forget,
  activeRuns,
  isKnown,
  reduce as reduceAt,
  runOf,
  elapsedSeconds,
  withProblem,
  type PanelState,
} from "../../src/state/reducer";
import type * as wire from "../../src/wire";
import { example, text } from "../examples";

const NOW = 1_790_000_000_000;
const reduce = (state: PanelState, message: wire.Message) => reduceAt(state, message, NOW);
const clusters = example<wire.ClustersMessage>("clusters");
const run = example<wire.RunMessage>("run");
const log = example<wire.LogMessage>("log");
const endpoints = example<wire.EndpointsMessage>("endpoints");

test("each message replaces the last message of its kind", () => {
  const stopping = example<wire.ClustersMessage>("clusters-stopping");
  const state = reduce(reduce(EMPTY, clusters), stopping);
  expect(state.clusters).toBe(stopping.clusters);
  expect(state.hub).toEqual(stopping.hub);
});

test("messages of different kinds are independent", () => {
  const topics = [example<wire.ResourcesMessage>("resources"), example<wire.RunsMessage>("runs")];
  const state = [clusters, endpoints, ...topics, run].reduce<PanelState>(reduce, EMPTY);
  expect(state.clusters).toBe(clusters.clusters);
  expect(state.endpoints).toBe(endpoints.endpoints);
  expect(state.resources?.profiles).toHaveLength(3);
  expect(state.total).toBe(500);
  expect(Object.keys(state.views)).toEqual([run.id]);
});

test("clusters are known only after they have arrived, and while the hub and the server answer", () => {
  expect(isKnown(EMPTY)).toBe(false);
  const state = reduce({ ...EMPTY, connection: "open" }, clusters);
  expect(isKnown(state)).toBe(true);
  expect(isKnown(reduce(state, example<wire.ClustersMessage>("clusters-hub-away")))).toBe(false);
  expect(isKnown({ ...state, connection: "lost" })).toBe(false);
});

test("endpoints are unknown until they arrive, and each message replaces the last one", () => {
  expect(EMPTY.endpoints).toBeNull();
  const state = reduce(reduce(EMPTY, endpoints), { kind: "endpoints", endpoints: [] });
  expect(state.endpoints).toEqual([]);
  expect(reduce(state, clusters).endpoints).toBe(state.endpoints);
});

test("a heartbeat does not change the state, so nothing is rendered again", () => {
  expect(reduce(EMPTY, example<wire.Beat>("beat"))).toBe(EMPTY);
});

test("parts of a log are joined under the key of the rank", () => {
  const more = { ...log.part, offset: 181, next: 185, size: 185, text: "more" };
  const state = reduce(reduce(EMPTY, log), { kind: "log", part: more });
  expect(state.logs[`run ${String(log.part.run)} 1`]?.text).toBe(`${log.part.text}more`);
});

test("a problem is shown once, and the last three are kept", () => {
  const problem = example<wire.ProblemMessage>("problem");
  expect(reduce(reduce(EMPTY, problem), problem).problems).toEqual([problem.problem]);
  const many = ["a", "b", "c", "d"].map((message): wire.Problem => ({ code: "failed", message, runs: [] }));
  expect(many.reduce(withProblem, EMPTY).problems.map(({ message }) => message)).toEqual(["b", "c", "d"]);
});

test("runs and logs without a subscription are removed", () => {
  const followed = example<wire.FollowedMessage>("followed");
  const full = [run, log, followed].reduce<PanelState>(reduce, EMPTY);
  expect(full.followed).toEqual({ [run.id]: followed });
  const state = forget(full, { runs: [run.id], followed: [run.id], logs: [`run ${run.id} 1`] });
  expect([state.views, state.followed, state.logs]).toEqual([{}, {}, {}]);
});

test("a run without a driver can be active", () => {
  const state = reduce(EMPTY, example<wire.RunsMessage>("runs"));
  expect(activeRuns(state).map(({ status }) => status)).toEqual(["running", "lost"]);
  expect(runOf(state, run.id)?.name).toBe("first-cnn");
});

test("all kinds of messages that the server sends are known", () => {
  const names = Object.entries(example<Record<string, string>>("types"));
  const messages = names.filter(([, type]) => /.Message$|^Beat$/.test(type)).map(([name]) => `${name}.json`);
  expect(messages.filter((name) => parse(text(name)) === null)).toEqual([]);
});

test("unknown kinds of messages, as from a newer server, are ignored", () => {
  expect(parse(text("clusters.json"))?.kind).toBe("clusters");
  expect(parse('{"kind": "weather"}')).toBeNull();
  expect(parse("3")).toBeNull();
});

test("only an active run grows older by the clock of the page", () => {
  const state = reduce(EMPTY, example<wire.RunsMessage>("runs"));
  const [running, finished] = state.runs as [wire.RunSummary, wire.RunSummary];
  expect(elapsedSeconds(running, state, NOW + 5000)).toBe(66.5);
  expect(elapsedSeconds(running, state, NOW - 5000)).toBe(61.5);
  expect(elapsedSeconds(finished, state, NOW + 5000)).toBe(93.25);
});
