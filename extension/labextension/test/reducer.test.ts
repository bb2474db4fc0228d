import {
  EMPTY,
  forget,
  activeRuns,
  reduce as reduceAt,
  runOf,
  elapsedSeconds,
  withProblem,
  type PanelState,
} from "../src/state/reducer";
import { parse } from "../src/net/stream";
import type * as wire from "../src/wire";
import { example, text } from "./examples";

const NOW = 1_790_000_000_000;
const reduce = (state: PanelState, message: wire.Message) => reduceAt(state, message, NOW);
const clusters = example<wire.ClustersMessage>("clusters");
const run = example<wire.RunMessage>("run");
const log = example<wire.LogMessage>("log");

test("each message takes the place of the last of its kind", () => {
  const stopping = example<wire.ClustersMessage>("clusters-stopping");
  const state = reduce(reduce(EMPTY, clusters), stopping);
  expect(state.clusters).toBe(stopping.clusters);
  expect(state.hub).toEqual(stopping.hub);
});

test("messages of different kinds leave each other alone", () => {
  const messages = [clusters, example<wire.ResourcesMessage>("resources"), example<wire.RunsMessage>("runs"), run];
  const state = messages.reduce<PanelState>(reduce, EMPTY);
  expect(state.clusters).toBe(clusters.clusters);
  expect(state.resources?.profiles).toHaveLength(3);
  expect(state.total).toBe(500);
  expect(Object.keys(state.views)).toEqual([run.id]);
});

test("a sign of life changes nothing, so nothing is drawn anew", () => {
  expect(reduce(EMPTY, example<wire.Beat>("beat"))).toBe(EMPTY);
});

test("logs are put together under the rank's name", () => {
  const more = { ...log.part, offset: 181, next: 185, size: 185, text: "more" };
  const state = reduce(reduce(EMPTY, log), { kind: "log", part: more });
  expect(state.logs[`run ${String(log.part.run)} 1`]?.text).toBe(`${log.part.text}more`);
});

test("a problem is shown once, and the last three stay", () => {
  const problem = example<wire.ProblemMessage>("problem");
  expect(reduce(reduce(EMPTY, problem), problem).problems).toEqual([problem.problem]);
  const many = ["a", "b", "c", "d"].map((message): wire.Problem => ({ code: "failed", message, runs: [] }));
  expect(many.reduce(withProblem, EMPTY).problems.map(({ message }) => message)).toEqual(["b", "c", "d"]);
});

test("what nobody looks at is forgotten", () => {
  const state = forget(reduce(reduce(EMPTY, run), log), [run.id], [`run ${run.id} 1`]);
  expect(state.views).toEqual({});
  expect(state.logs).toEqual({});
});

test("a run that goes on without a driver counts as going on", () => {
  const state = reduce(EMPTY, example<wire.RunsMessage>("runs"));
  expect(activeRuns(state).map(({ status }) => status)).toEqual(["running", "lost"]);
  expect(runOf(state, run.id)?.name).toBe("first-cnn");
});

test("messages of a kind that a newer server sends are passed over", () => {
  expect(parse(text("clusters.json"))?.kind).toBe("clusters");
  expect(parse('{"kind": "weather"}')).toBeNull();
  expect(parse("3")).toBeNull();
});

test("a run that goes on grows older by the page's own clock, another does not", () => {
  const state = reduce(EMPTY, example<wire.RunsMessage>("runs"));
  const [running, finished] = state.runs as [wire.RunSummary, wire.RunSummary];
  expect(elapsedSeconds(running, state, NOW + 5000)).toBe(66.5);
  expect(elapsedSeconds(running, state, NOW - 5000)).toBe(61.5);
  expect(elapsedSeconds(finished, state, NOW + 5000)).toBe(93.25);
});
