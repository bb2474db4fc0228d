/** Checks how many elements the page contains if there are many ranks. */

import type * as wire from "../../../src/wire";
import { example } from "../../examples";
import { Harness } from "../../harness";

const MANY = 64;
const POINTS = 300;
const numbers = Array.from({ length: POINTS }, (_, n) => n);
const each = <T,>(make: (rank: number) => T): T[] => Array.from({ length: MANY }, (_, rank) => make(rank));

let harness: Harness;
beforeEach(async () => {
  harness = new Harness();
  harness.answers["run"] = () => example<wire.RunDetail>("run-detail");
  await harness.open();
  await harness.receiveState("state");
});
afterEach(() => {
  harness.close();
});

const count = (selector: string) => harness.root.querySelectorAll(selector).length;

function runOfMany(): wire.RunMessage {
  const run = example<wire.RunMessage>("run-by-rank");
  const [series] = run.view.series as [wire.Series];
  const line = { x: numbers, mean: numbers };
  const ranks = Object.fromEntries(each((rank) => [rank, line]));
  const drawn = { ...series, ...line, low: numbers, high: numbers, bad_x: [], ranks };
  const [row] = run.view.ranks as [wire.RankRow];
  const rows = each((rank) => ({ ...row, rank, worker: `main-w${rank}` }));
  return { ...run, view: { ...run.view, series: [drawn, { ...drawn, name: "accuracy" }], ranks: rows } };
}

test("a run of 64 ranks with 300 points each, by rank", async () => {
  const run = runOfMany();
  await harness.navigate({ show: "run", run: run.id });
  await harness.click("button", "one line per rank");
  await harness.receive(run);
  expect(count("path.fd-mean")).toBe(2 * MANY);
  expect(count(".fd-chart *")).toBeLessThan(2 * (MANY + 80));
  expect(count(".fd-scroll tbody tr")).toBe(MANY);
  expect(count("*")).toBeLessThan(1500);
});

test("a cluster of 64 workers has one line per worker, and shows more of a worker on request", async () => {
  const message = example<wire.ClustersMessage>("clusters");
  const [cluster] = message.clusters as [wire.Cluster];
  const [worker] = cluster.workers as [wire.Worker];
  const workers = each((rank) => ({ ...worker, name: `main-w${rank}`, ranks: [{ rank, alive: rank !== 63 }] }));
  await harness.receive({ ...message, clusters: [{ ...cluster, workers }] });
  expect(count(".fd-worker")).toBe(MANY);
  expect(count("*")).toBeLessThan(700);
  expect(harness.root.textContent).toContain("rank 63 is dead");
  expect(await harness.violations()).toEqual([]);
  await harness.click("button", "More of main-w7");
  expect(count(".fd-usage")).toBe(1);
  expect(harness.get("button", "Log of main-w7")).toBeTruthy();
});
