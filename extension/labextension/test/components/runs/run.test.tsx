/** Tests of the page of one run. */

import { act } from "react";

import { RequestError } from "../../../src/net/requestError";
import type * as wire from "../../../src/wire";
import { example } from "../../examples";
import { Harness } from "../../harness";

let harness: Harness;
const first = example<wire.RunsMessage>("runs").runs[0] as wire.RunSummary;

beforeEach(async () => {
  harness = new Harness();
  harness.answers["run"] = () => example<wire.RunDetail>("run-detail");
  await harness.open();
  await harness.receiveState("state");
  await harness.receive(example<wire.RunsMessage>("runs"));
  await harness.click("tab", "Runs");
});
afterEach(() => {
  harness.close();
});

describe("one run", () => {
  beforeEach(async () => {
    await harness.navigate({ show: "run", run: first.id });
  });
  const text = () => harness.root.textContent;
  const open = (section: string) =>
    act(async () => {
      const details = harness.root.querySelector(section) as HTMLDetailsElement;
      details.open = true;
      details.dispatchEvent(new Event("toggle"));
      for (let n = 0; n < 10; n += 1) await Promise.resolve();
    });

  test("shows charts, ranks, progress, notices and its notebook", async () => {
    await harness.receive(example<wire.RunMessage>("run"));
    expect(harness.root.querySelectorAll(".fd-chart")).toHaveLength(2);
    expect(harness.root.querySelector(".fd-chart-tools")?.hasAttribute("open")).toBe(false);
    for (const part of [
      "main-w1",
      "slowest",
      "40 of 128",
      "rank 1 was silent",
      "cell in digits.ipynb",
      "3,578 samples/s",
    ])
      expect(text()).toContain(part);
    expect(harness.get("link", "Download CSV").getAttribute("href")).toBe(`/csv/${first.id}`);
    expect(harness.get("link", "TensorBoard").getAttribute("href")).toBe(`/tensorboard/${first.id}`);
    await harness.click("button", "cell in digits.ipynb");
    expect(harness.openNotebook).toHaveBeenCalledWith(
      expect.objectContaining({ notebook: first.notebook, kernel: first.kernel }),
      first.cell,
    );
    expect(await harness.violations()).toEqual([]);
  });

  test("shows one line per rank on request", async () => {
    await harness.click("button", "one line per rank");
    expect(harness.watches.at(-1)?.by_rank).toBe(true);
    await harness.receive(example<wire.RunMessage>("run-by-rank"));
    expect(harness.root.querySelector(".fd-legend")?.textContent).toContain("rank 1");
  });

  test("is shown again after a reload, and does not take the focus", async () => {
    await harness.reload();
    expect(harness.get("button", "one line per rank")).toBeTruthy();
    expect(document.activeElement).toBe(document.body);
    await harness.click("button", "‹ All runs");
    await harness.reload();
    expect(harness.get("searchbox", "Filter by name, notebook, tag, hyper-parameter or notes")).toBeTruthy();
  });

  test("has its code in the page only while the code is open", async () => {
    const { code } = example<wire.RunDetail>("run-detail");
    expect(text()).not.toContain(code);
    await open(".fd-origin");
    expect(text()).toContain(code);
  });

  test("has its usage over time, which is loaded when the user shows it", async () => {
    const usage = example<wire.RunUsage>("run-usage");
    harness.answers["usage"] = () => ({ ...usage, notices: ["A file of this run cannot be read"] });
    await open(".fd-system");
    expect(harness.requests.at(-1)).toBe(`usage "${first.id}" false`);
    for (const part of ["CPU, of one core", "98 %", "Memory", "3.2 GiB", "1 MiB/s", "A file of this run"]) {
      expect(text()).toContain(part);
    }
    expect(harness.root.querySelector(".fd-system .fd-note")?.getAttribute("data-kind")).toBeNull();
    await harness.click("button", "usage of each rank");
    expect(harness.requests.at(-1)).toBe(`usage "${first.id}" true`);
    expect(await harness.violations()).toEqual([]);
  });

  test("shows the hyper-parameters that the cell has set before its first report", async () => {
    const detail = example<wire.RunDetail>("run-detail");
    harness.answers["run"] = () => ({ ...detail, config: {}, view: { ...detail.view, series: [] } });
    await harness.navigate({ show: "run", run: "run-new" });
    expect(harness.root.querySelector(".fd-config")).toBeNull();
    harness.answers["run"] = () => ({ ...detail, config: { lr: 0.1, nesterov: true, clip: null } });
    await harness.receive({ ...example<wire.RunMessage>("run"), id: "run-new" });
    expect(harness.root.querySelector(".fd-config")?.textContent).toBe("lr0.1nesterovTrueclipNone");
  });

  test("is stopped by its button, which shows it", async () => {
    harness.answers["stopRun"] = () => first;
    await harness.click("button", "Stop the run");
    expect(harness.requests.at(-1)).toBe(`stopRun "${first.id}"`);
    expect((harness.get("button", "Stopping…") as HTMLButtonElement).disabled).toBe(true);
  });

  test("has the logs of its ranks", async () => {
    await harness.type("combobox", "Log of", "1");
    expect(harness.watches.at(-1)?.logs).toEqual([{ run: first.id, rank: 1, worker: null, offset: -16000 }]);
    await harness.receive(example<wire.LogMessage>("log"));
    expect(harness.get("log", "Log of rank 1").textContent).toContain(" 41%");
  });

  test("shows its error if it failed", async () => {
    await harness.navigate({ show: "run", run: "20260921-135500-31d0" });
    await harness.receive(example<wire.RunMessage>("run-failed"));
    expect(harness.get("alert", /batch size must be positive/)).toBeTruthy();
  });
});

test("a missing run shows an error", async () => {
  const problem = example<wire.ProblemMessage>("problem").problem;
  harness.answers["run"] = () => Promise.reject(new RequestError(problem, 404));
  await harness.navigate({ show: "run", run: "20260921-000000-0000" });
  expect(harness.root.textContent).toContain(problem.message);
  expect(harness.root.textContent).toContain("This run cannot be shown");
});

test("of a run that is only followed, the page keeps the news until it follows the run no more", async () => {
  const news = example<wire.FollowedMessage>("followed");
  const settle = () =>
    act(async () => {
      await Promise.resolve();
    });
  await harness.receive(news);
  expect(harness.model.state.followed).toEqual({});
  const unfollow = harness.model.subscribe({ followed: [news.id] });
  await settle();
  expect(harness.watches.at(-1)?.followed).toEqual([news.id]);
  await harness.receive(news);
  expect(harness.model.state.followed).toEqual({ [news.id]: news });
  unfollow();
  await settle();
  expect(harness.model.state.followed).toEqual({});
});
