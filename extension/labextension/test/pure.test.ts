/** Tests of pure functions, such as those for formats, filters, virtual rows, pages and comparisons. */

import { compare, labels } from "../src/charts/comparison";
import { OVERSCAN, rowsOf, scrollTo } from "../src/components/runs/virtualRows";
import {
  basename,
  bytes,
  bytesOf,
  clock,
  duration,
  gpuMemory,
  percent,
  preciseClock,
  rate,
  share,
  title,
} from "../src/format";
import { ALL, isAll, query } from "../src/net/filters";
import { ledBy, runningCells } from "../src/notebooks/cells";
import { firstPage, missing, NO_PAGES, PAGE, runAt, withPage } from "../src/state/pages";
import { factsOf } from "../src/state/status";
import { dropped, isSame, watchOf } from "../src/state/subscriptions";
import type * as wire from "../src/wire";
import { example } from "./examples";

const state = example<wire.State>("state");
const runs = example<wire.RunsMessage>("runs").runs;
const run = runs[0] as wire.RunSummary;

describe("formats", () => {
  test("sizes", () => {
    expect([0, 999, 1536, 640 * 2 ** 20, 2415919104].map(bytes)).toEqual([
      "0 B",
      "999 B",
      "2 KiB",
      "640 MiB",
      "2.3 GiB",
    ]);
    expect([2 ** 10 - 0.4, 2 ** 20 - 1, 2 ** 20 - 513, 2 ** 30 - 1].map(bytes)).toEqual([
      "1 KiB",
      "1 MiB",
      "1023 KiB",
      "1.0 GiB",
    ]);
    expect(bytes(null)).toBe("–");
    expect(bytesOf(2415919104, 17179869184)).toBe("2.3 GiB / 16.0 GiB");
    expect(bytesOf(2415919104, null)).toBe("2.3 GiB");
    expect(rate(11250000)).toBe("11 MiB/s");
  });
  test("shares", () => {
    expect(percent(87.4)).toBe("87 %");
    expect(percent(null)).toBe("–");
    expect([share(1, 2), share(3, 2), share(null, 2), share(1, 0)]).toEqual([0.5, 1, null, null]);
  });
  test("durations", () => {
    expect([0, 61.5, 3723, 60204.5, 200000].map(duration)).toEqual(["0:00", "1:02", "1:02:03", "16:43:25", "2 d 7 h"]);
  });
  test("times have 24 hours in every locale, and those of other days a date", () => {
    const now = new Date(2026, 8, 21, 15, 0);
    const at = (day: number, hours: number) => new Date(2026, 8, day, hours, 5, 7).getTime() / 1000;
    expect([0, 9, 14].map((hours) => clock(at(21, hours), now))).toEqual(["00:05", "09:05", "14:05"]);
    expect([7, 20, 22].map((day) => clock(at(day, 14), now))).toEqual([
      "2026-09-07 14:05",
      "2026-09-20 14:05",
      "2026-09-22 14:05",
    ]);
    expect(preciseClock(at(21, 14), now)).toBe("14:05:07");
    expect(preciseClock(at(20, 14), now)).toBe("2026-09-20 14:05:07");
  });
  test("names", () => {
    expect(title({ id: "20260921", name: "" })).toBe("20260921");
    expect(basename("work/digits.ipynb")).toBe("digits.ipynb");
    expect(gpuMemory([])).toBeNull();
  });
});

describe("filters", () => {
  test("empty fields are not sent", () => {
    expect(query(ALL, 0, 50)).toEqual({ offset: "0", limit: "50" });
    expect(query({ text: " wide ", status: "failed", cluster: "" }, 50, 50)).toEqual({
      offset: "50",
      limit: "50",
      text: "wide",
      status: "failed",
    });
    expect(isAll({ ...ALL, text: "  " })).toBe(true);
  });
});

describe("virtual rows", () => {
  const view = { scrollTop: 0, height: 400, rowHeight: 50, total: 500 };
  test("only visible rows are rendered, however long the list is", () => {
    expect(rowsOf(view)).toEqual({ first: 0, last: 9 + OVERSCAN });
    const middle = rowsOf({ ...view, scrollTop: 10_000, total: 100_000 });
    expect(middle).toEqual({ first: 200 - OVERSCAN, last: 209 + OVERSCAN });
  });
  test("rows stop at the end of the list, also after it became shorter", () => {
    expect(rowsOf({ ...view, scrollTop: 500 * 50 - 400 }).last).toBe(500);
    expect(rowsOf({ ...view, scrollTop: 20_000, total: 3 })).toEqual({ first: 0, last: 3 });
    expect(rowsOf({ ...view, total: 0 })).toEqual({ first: 0, last: 0 });
  });
  test("a visible row does not scroll the list", () => {
    expect(scrollTo(3, view)).toBe(0);
    expect(scrollTo(20, view)).toBe(650);
    expect(scrollTo(2, { ...view, scrollTop: 500 })).toBe(100);
  });
});

describe("pages of runs", () => {
  const page = (offset: number, total: number): wire.RunPage => ({
    offset,
    total,
    runs: Array.from({ length: PAGE }, (_, n) => ({ ...run, id: `run-${offset + n}` })),
  });
  test("only missing pages are requested", () => {
    const pages = withPage(NO_PAGES, page(0, 500));
    expect(missing(pages, 0, 20)).toEqual([]);
    expect(missing(pages, 40, 110)).toEqual([50, 100]);
    expect(missing(pages, 480, 510)).toEqual([450]);
  });
  test("a new run drops the other pages", () => {
    const pages = withPage(withPage(withPage(NO_PAGES, page(0, 500)), page(50, 500)), page(0, 501));
    expect([...pages.pages.keys()]).toEqual([0]);
  });
  test("a run from the stream is newer", () => {
    const pages = withPage(NO_PAGES, page(50, 500));
    const streamed = new Map([["run-51", { ...run, id: "run-51", status: "failed" as const }]]);
    expect([runAt(pages, 50, streamed)?.status, runAt(pages, 51, streamed)?.status]).toEqual(["running", "failed"]);
    expect(runAt(pages, 0, streamed)).toBeNull();
  });
  test("the first page consists of the runs from the stream, without old active runs", () => {
    const newest = page(0, 500).runs.map((one, n) => ({ ...one, started: 1000 - n }));
    const old = { ...run, id: "old", started: 1 };
    expect(firstPage([...newest, old], 500)?.runs.map(({ id }) => id)).toEqual(newest.map(({ id }) => id));
    expect(firstPage(runs, 500)).toBeNull();
    expect(firstPage(runs, 5)?.runs).toHaveLength(5);
  });
});

describe("comparison", () => {
  const view = example<wire.RunMessage>("run").view;
  test("each run with the series has a line", () => {
    const other = { ...view, id: "other", name: "wide", series: view.series.slice(0, 1) };
    const [loss, accuracy] = compare([view, other]);
    expect(loss?.lines.map(({ label }) => label)).toEqual(["first-cnn", "wide"]);
    expect(accuracy?.lines.map(({ label }) => label)).toEqual(["first-cnn"]);
    expect(loss?.x).toEqual(view.series[0]?.x);
  });
  test("a run keeps its place in charts without lines of other runs", () => {
    const other = { ...view, id: "other", name: "wide", series: view.series.slice(1) };
    expect(compare([other, view]).map(({ lines }) => lines.map(({ place }) => place))).toEqual([[0, 1], [1]]);
  });
  test("runs with the same name have different labels", () => {
    expect(labels([view, { ...view, id: "other" }])).toEqual([`first-cnn (${view.id})`, "first-cnn (other)"]);
    expect(labels([{ id: "a", name: "" }])).toEqual(["a"]);
  });
});

describe("cells and notebooks", () => {
  const at = (path: string, kernel = "") => ({ path, kernel });
  const known = (notebook: string) => runs.map((one) => ({ ...one, notebook, kernel: "" }));
  test("a notebook with the same name in another folder is a different notebook", () => {
    expect(runningCells(known("digits.ipynb"), at("work/digits.ipynb")).size).toBe(0);
    expect(runningCells(known("work/digits.ipynb"), at("digits.ipynb")).size).toBe(0);
    expect(runningCells(known(""), at("")).size).toBe(0);
  });
  test("a renamed notebook has the runs of its kernel, and a restarted notebook the runs of its path", () => {
    expect(runningCells(runs, at("renamed.ipynb", run.kernel)).size).toBe(1);
    expect(runningCells(runs, at("renamed.ipynb", "another")).size).toBe(0);
    expect(runningCells(runs, at(run.notebook, "another")).size).toBe(1);
  });
  test("a renamed notebook still leads its cluster, and a new notebook with the old name does not", () => {
    const kernel = state.clusters[0]?.lead?.kernel ?? "";
    expect(ledBy(state.clusters, at("renamed.ipynb", kernel)).map(({ name }) => name)).toEqual(["main"]);
    expect(ledBy(state.clusters, at("work/digits.ipynb", "another"))).toEqual([]);
  });
  test("only the cell of an active run is marked", () => {
    const marked = runningCells(runs, at("work/digits.ipynb"));
    expect([...marked].map(([cell, { id }]) => [cell, id])).toEqual([[run.cell, run.id]]);
    expect(runningCells(runs, at("other.ipynb")).size).toBe(0);
  });
  test("a notebook leads its clusters", () => {
    expect(ledBy(state.clusters, at("work/digits.ipynb")).map(({ name }) => name)).toEqual(["main"]);
  });
});

describe("the status bar", () => {
  test("it shows ranks, the newest run and the memory of all GPUs", () => {
    const facts = factsOf(state.clusters, [run, run]);
    expect(facts).toEqual({ ranks: 4, starting: false, dead: 0, run: "first-cnn +1", gpu: "12.0 GiB" });
  });
  test("dead ranks are counted", () => {
    expect(factsOf(example<wire.ClustersMessage>("clusters-dead-rank").clusters, []).dead).toBe(1);
    expect(factsOf([], [])).toEqual({ ranks: 0, starting: false, dead: 0, run: null, gpu: null });
  });
});

describe("subscriptions", () => {
  const log = { run: "a", rank: 0, worker: null, offset: -8000 };
  test("subscriptions are merged, each run and log once", () => {
    const followed = ["c", "a"];
    const all = [{ runs: ["b", "a"] }, { runs: ["a"], byRank: true, logs: [log] }, { logs: [log], followed }];
    const wanted = { runs: ["a", "b"], followed: ["a", "c"], by_rank: true, logs: [log] };
    expect(watchOf(all, {})).toEqual({ kind: "watch", seen: false, ...wanted });
  });
  test("a known log continues at its end", () => {
    const known = { "run a 0": { text: "", offset: 0, next: 181, size: 181 } };
    const watch = watchOf([{ logs: [log] }], known);
    expect(watch.logs[0]?.offset).toBe(181);
    expect(isSame(watch, watchOf([{ logs: [log] }], {}))).toBe(true);
    const seen = watchOf([{ logs: [log] }, { seen: true }], {});
    expect([seen.seen, isSame(watch, seen)]).toEqual([true, false]);
  });
  test("a page with many runs subscribes to the newest, because the server would refuse all of them", () => {
    const many = Array.from({ length: 60 }, (_, n) => `20260921-0000${n + 10}`);
    const { runs: requested, logs } = watchOf([{ runs: many, logs: [log] }], {});
    expect([requested.length + logs.length, requested[0], requested.at(-1)]).toEqual([50, many[11], many[59]]);
    expect(watchOf([{ followed: many, logs: [log] }], {}).followed).toEqual(many.slice(10));
  });
  test.each([
    [49, ["b"]],
    [50, []],
    [51, []],
  ])("runs get only the room that %p logs leave", (count, left) => {
    const logs = Array.from({ length: count }, (_, rank) => ({ ...log, rank }));
    expect(watchOf([{ runs: ["a", "b"], logs }], {}).runs).toEqual(left);
  });
  test("ended subscriptions are found", () => {
    const before = watchOf([{ runs: ["a", "b"], followed: ["b", "c"], logs: [log] }], {});
    const after = watchOf([{ runs: ["b"], followed: ["b"] }], {});
    expect(dropped(before, after)).toEqual({ runs: ["a"], followed: ["c"], logs: ["run a 0"] });
    expect(isSame(before, after)).toBe(false);
  });
});
