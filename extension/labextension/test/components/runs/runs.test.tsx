/** Tests of the tab "Runs". */

import { act } from "react";

import { ALL } from "../../../src/net/filters";
import { PAGE } from "../../../src/state/pages";
import type * as wire from "../../../src/wire";
import { example } from "../../examples";
import { Harness } from "../../harness";

let harness: Harness;
const first = example<wire.RunsMessage>("runs").runs[0] as wire.RunSummary;
const MANY = 500;

/** 500 runs, newest first. Only the newest run is active. */
const many = Array.from({ length: MANY }, (_, n): wire.RunSummary => ({
  ...first,
  id: `run-${n}`,
  name: `name-${n}`,
  status: n ? "finished" : "running",
  goes_on: n === 0,
  started: 1790000000 - n * 60,
}));

function page(_: unknown, offset: number, limit: number): wire.RunPage {
  return { runs: many.slice(offset, offset + limit), offset, total: MANY };
}

beforeEach(async () => {
  harness = new Harness();
  harness.answers["runs"] = page;
  harness.answers["run"] = () => example<wire.RunDetail>("run-detail");
  await harness.open();
});
afterEach(() => {
  harness.close();
});

async function show(message: wire.RunsMessage): Promise<void> {
  await harness.receiveState("state");
  await harness.receive(message);
  await harness.click("tab", "Runs");
}

const showMany = () => show({ kind: "runs", runs: many.slice(0, PAGE), total: MANY });
const scroller = () => harness.get("list", "Runs").parentElement as HTMLElement;
const rows = () => [...harness.root.querySelectorAll(".fd-run")];

test("an empty list names the first step", async () => {
  await harness.receiveState("state-empty");
  await harness.click("tab", "Runs");
  await harness.click("button", "Insert training cell");
  expect(harness.insertTraining).toHaveBeenCalled();
});

test("the page of all runs is opened", async () => {
  await showMany();
  await harness.click("button", "All runs");
  expect(harness.openPage).toHaveBeenCalled();
});

test("only visible rows of 500 runs are in the page, and runs from the stream are not fetched", async () => {
  await showMany();
  expect(rows().length).toBeGreaterThan(5);
  expect(rows().length).toBeLessThan(30);
  expect(harness.root.querySelectorAll("*").length).toBeLessThan(400);
  expect(rows()[0]?.getAttribute("aria-setsize")).toBe("500");
  expect(await harness.violations()).toEqual([]);
  expect(harness.requests.filter((one) => one.startsWith("runs"))).toEqual([]);
});

test("a page is fetched once, when the user scrolls to it", async () => {
  await showMany();
  for (const top of [20_000, 20_010]) await scroll(top);
  await harness.receive();
  expect(harness.requests).toEqual([`runs ${JSON.stringify(ALL)} 300 50`, `runs ${JSON.stringify(ALL)} 350 50`]);
  expect(rows().length).toBeLessThan(30);
  expect(rows()[5]?.textContent).toContain("name-3");
});

/** Press a key on the focused element, and return the run that has the focus afterwards. */
async function press(key: string): Promise<string | null | undefined> {
  await act(async () => {
    const at = scroller().contains(document.activeElement) ? document.activeElement : scroller();
    at?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    await Promise.resolve();
  });
  await harness.receive();
  return document.activeElement?.getAttribute("data-run");
}

async function scroll(top: number): Promise<void> {
  await act(async () => {
    scroller().scrollTop = top;
    scroller().dispatchEvent(new Event("scroll"));
    await Promise.resolve();
  });
}

const tabbable = () => [...scroller().querySelectorAll<HTMLElement>("button[tabindex='0']")];

test("the arrow keys move through the list", async () => {
  await showMany();
  expect(await press("ArrowDown")).toBe("run-1");
  expect(await press("ArrowDown")).toBe("run-2");
  expect(await press("Home")).toBe("run-0");
});

test("a row that is not fetched yet can have the focus and keeps it", async () => {
  await showMany();
  let answer: (page: wire.RunPage) => void = jest.fn();
  harness.answers["runs"] = () => new Promise<wire.RunPage>((resolve) => (answer = resolve));
  expect(await press("End")).toBeNull();
  expect(document.activeElement?.textContent).toBe("Loading…");
  answer(page(null, 450, 50));
  await harness.receive();
  expect(document.activeElement?.getAttribute("data-run")).toBe("run-499");
  expect(await press("ArrowUp")).toBe("run-498");
});

test("the current row keeps the focus while the list scrolls, and Tab reaches one row", async () => {
  await showMany();
  await press("ArrowDown");
  await scroll(20_000);
  expect(document.activeElement?.getAttribute("data-run")).toBe("run-1");
  expect(tabbable().map((row) => row.dataset["run"])).toEqual(["run-1"]);
});

test("Tab reaches a row after a filter made the list shorter", async () => {
  await showMany();
  await press("End");
  await harness.receive({ kind: "runs", runs: many.slice(0, 3), total: 3 });
  expect(tabbable().map((row) => row.dataset["run"])).toEqual(["run-2"]);
});

test("the filter says what its words match", async () => {
  await showMany();
  const field = harness.get("searchbox", "Filter by name, notebook, tag, hyper-parameter or notes");
  expect((field as HTMLInputElement).placeholder).toBe("Name, notebook, tag, lr=0.1");
});

test("the server applies the filter", async () => {
  jest.useFakeTimers();
  await showMany();
  harness.answers["runs"] = () => ({ runs: many.slice(7, 8), offset: 0, total: 1 });
  await harness.type("searchbox", "Filter by name, notebook, tag, hyper-parameter or notes", "name-7");
  await act(async () => {
    await jest.advanceTimersByTimeAsync(1000);
  });
  jest.useRealTimers();
  expect(harness.requests).toEqual([`runs ${JSON.stringify({ ...ALL, text: "name-7" })} 0 50`]);
  expect(rows().map((row) => row.querySelector("[data-run]")?.getAttribute("data-run"))).toEqual(["run-7"]);
  expect(harness.root.querySelector("[role=status]")?.textContent).toBe("1 run");
});

test("a filter without matches shows a message", async () => {
  jest.useFakeTimers();
  await show(example<wire.RunsMessage>("runs"));
  harness.answers["runs"] = () => ({ runs: [], offset: 0, total: 0 });
  await harness.type("combobox", "Filter by status", "lost");
  await act(async () => {
    await jest.advanceTimersByTimeAsync(1000);
  });
  jest.useRealTimers();
  expect(harness.root.textContent).toContain("No run matches the filter");
});

test("the filter offers clusters without runs", async () => {
  await show(example<wire.RunsMessage>("runs"));
  const names = [...harness.get("combobox", "Filter by cluster").children].map((option) => option.textContent);
  expect(names).toContain("exam");
});

test("the number of compared runs is limited, and a note says so", async () => {
  await showMany();
  for (let n = 0; n < 8; n += 1) await harness.click("checkbox", `Compare name-${n}`);
  expect((harness.get("checkbox", "Compare name-8") as HTMLInputElement).disabled).toBe(true);
  expect((harness.get("checkbox", "Compare name-7") as HTMLInputElement).disabled).toBe(false);
  expect(harness.root.textContent).toContain("At most 8 runs are compared.");
});

test("an active run is shown with its chart", async () => {
  await show(example<wire.RunsMessage>("runs"));
  expect(harness.watches.at(-1)?.runs).toContain(first.id);
  await harness.receive(example<wire.RunMessage>("run"));
  const chart = harness.root.querySelector(".fd-live svg");
  expect(chart?.getAttribute("aria-label")).toContain("loss: last value 0.3139");
  expect(chart?.querySelectorAll("path.fd-mean").length).toBeGreaterThan(0);
});

/** Select two runs and compare them. */
async function compareTwo(): Promise<void> {
  const message = example<wire.RunsMessage>("runs");
  await show({ ...message, total: message.runs.length });
  await harness.click("checkbox", "Compare first-cnn");
  await harness.click("checkbox", "Compare wide");
  await harness.click("button", "Compare (2)");
}

test("the focus moves into a run or a comparison, and back to the row or button that opened it", async () => {
  await compareTwo();
  expect(document.activeElement).toBe(harness.get("button", "‹ All runs"));
  await harness.click("button", "‹ All runs");
  expect(document.activeElement).toBe(harness.get("button", "Compare (2)"));
  await harness.click("button", /^wide/);
  expect(document.activeElement).toBe(harness.get("button", "‹ All runs"));
  await harness.click("button", "‹ All runs");
  expect(document.activeElement?.getAttribute("data-run")).toBe("20260921-135500-31d0");
});

test("two runs are compared in one chart", async () => {
  await compareTwo();
  expect(harness.watches.at(-1)?.runs).toEqual(["20260921-135500-31d0", first.id]);
  const run = example<wire.RunMessage>("run");
  const other = { ...run, id: "20260921-135500-31d0", view: { ...run.view, id: "20260921-135500-31d0", name: "wide" } };
  await harness.receive(run, other);
  expect(harness.root.querySelectorAll(".fd-chart")).toHaveLength(2);
  expect(harness.root.querySelector(".fd-legend")?.textContent).toBe("first-cnnwideNaN or infinite");
});
