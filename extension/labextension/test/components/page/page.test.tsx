/** Tests of the table in the page of runs. */

import { act } from "react";

import { RequestError } from "../../../src/net/requestError";
import type * as wire from "../../../src/wire";
import { example } from "../../examples";
import {
  ALL,
  answered,
  asked,
  first,
  harness,
  heads,
  named,
  NEWEST,
  open,
  press,
  request,
  rows,
  table,
} from "./tablePage";

const valuesOf = (name: string) => ["last", "lowest", "highest"].map((part) => `series.${name}.${part}`);

test("of 5,000 runs only the visible rows are in the page, and only their parts are fetched", async () => {
  await open();
  expect(rows().length).toBeGreaterThan(5);
  expect(rows().length).toBeLessThan(30);
  expect(harness.root.querySelectorAll("*").length).toBeLessThan(1500);
  expect(harness.get("table", "Runs").getAttribute("aria-rowcount")).toBe("5001");
  expect(rows()[0]?.getAttribute("aria-rowindex")).toBe("2");
  expect(asked()).toEqual([request(ALL, NEWEST, 0)]);
});

test("the table and a field in it are accessible", async () => {
  await open(named("one"));
  await harness.click("button", "Edit: Notes of one");
  expect(await harness.violations()).toEqual([]);
});

test("the last row is reached with a key, fetched, and keeps the focus", async () => {
  await open();
  await press(rows()[0] ?? null, "End");
  expect(asked().at(-1)).toBe(request(ALL, NEWEST, 4950));
  expect(document.activeElement?.getAttribute("data-run")).toBe("run-4999");
});

test("there is a column for each hyper-parameter and for the last and the best value of each series", async () => {
  await open(() => ({
    ...table,
    series: ["loss", "val_accuracy"],
    defaults: [...table.defaults, ...valuesOf("val_accuracy")],
  }));
  const columns = ["lr", "nesterov", "optimizer", "loss, last", "loss, lowest"];
  const more = ["val_accuracy, last", "val_accuracy, highest"];
  expect(heads().slice(5, -4)).toEqual([...columns, ...more]);
  expect(rows()[0]?.textContent).toContain("0.1Truesgd0.210.2");
});

test("a click on a header sorts by the column, the better runs first, and another click reverses it", async () => {
  await open(() => ({ ...table, series: ["accuracy"], defaults: valuesOf("accuracy") }));
  await harness.click("button", "accuracy, highest");
  const column = "series.accuracy.highest";
  expect(asked().at(-1)).toBe(request(ALL, { column, descending: true }, 0));
  await harness.click("button", /^accuracy, highest/);
  expect(asked().at(-1)).toBe(request(ALL, { column, descending: false }, 0));
  const sorted = harness.root.querySelectorAll("[aria-sort]");
  expect([...sorted].map((head) => head.getAttribute("aria-sort"))).toEqual(["ascending"]);
});

test("the table is fetched again when the runs change", async () => {
  await open(named("one"));
  harness.answers["table"] = named("two", "one");
  await harness.receive({ kind: "runs", runs: [], total: 2 });
  await answered();
  expect(rows().map((row) => row.querySelector(".fd-link")?.textContent)).toEqual(["two", "one"]);
});

/** Let the time of fake timers pass. */
async function pass(milliseconds: number): Promise<void> {
  await act(async () => {
    await jest.advanceTimersByTimeAsync(milliseconds);
  });
  await answered();
}

/** Make the server answer the next requests for the table only when the returned functions are called. */
function slowly(): ((table: wire.RunTable) => void)[] {
  const waiting: ((table: wire.RunTable) => void)[] = [];
  harness.answers["table"] = () =>
    new Promise<wire.RunTable>((resolve) => {
      waiting.push(resolve);
    });
  return waiting;
}

const shownNames = () => rows().map((row) => row.querySelector(".fd-link")?.textContent);

test("while values are still being read, the page says so, and asks again until all are known", async () => {
  jest.useFakeTimers();
  await open(() => ({ ...named("one")(), complete: false }));
  expect(harness.root.textContent).toContain("1 run · Values of some runs are still being read…");
  await pass(1000);
  expect(asked()).toHaveLength(2);
  harness.answers["table"] = named("one");
  await pass(1000);
  expect(asked()).toHaveLength(3);
  expect(harness.root.textContent).not.toContain("still being read");
  await pass(30_000);
  jest.useRealTimers();
  expect(asked()).toHaveLength(3);
});

test("a slow answer is waited for, and the question is asked again if the runs have changed since", async () => {
  const waiting = slowly();
  await open();
  await harness.receive({ kind: "runs", runs: [], total: 1 });
  await harness.receive({ kind: "runs", runs: [], total: 2 });
  expect(asked()).toHaveLength(1);
  harness.answers["table"] = named("two", "one");
  waiting[0]?.(named("one")());
  await answered();
  expect(asked()).toHaveLength(2);
  expect(shownNames()).toEqual(["two", "one"]);
});

test("the answer to a question about another order is dropped", async () => {
  await open(named("one"));
  const waiting = slowly();
  await harness.click("button", "Name");
  harness.answers["table"] = named("by status");
  await harness.click("button", "Status");
  await answered();
  waiting[0]?.(named("by name")());
  await answered();
  expect(shownNames()).toEqual(["by status"]);
});

test("the notebook of a run is opened also if the row has only the beginning of its path", async () => {
  await open(() => ({ ...table, runs: [{ ...first, notebook: "work/very-lo…" }] }));
  await harness.click("button", "Open the notebook of first-cnn");
  const { summary } = example<wire.RunDetail>("run-detail");
  expect(harness.openNotebook).toHaveBeenCalledWith(summary, summary.cell);
});

test("texts of users are never markup", async () => {
  await open(named("<img src=x onerror=alert(1)>"));
  expect(harness.root.querySelector("img")).toBeNull();
});

test("deleting asks first, names runs and sizes, and keeps a run that the server refuses to delete", async () => {
  await open(named("one", "two"));
  harness.answers["deleteRun"] = (id: string) => {
    if (id === "id-two") throw new RequestError({ code: "exists", message: "two goes on", runs: [] }, 409);
    return true;
  };
  await harness.click("checkbox", "Select one");
  await harness.click("checkbox", "Select two");
  harness.confirm.mockResolvedValueOnce(false);
  await harness.click("button", "Delete (2)");
  expect(harness.requests.filter((one) => one.startsWith("deleteRun"))).toEqual([]);
  await harness.click("button", "Delete (2)");
  await answered();
  const [heading, body] = harness.confirm.mock.calls[1] as unknown as [string, string];
  expect(heading).toBe("Delete 2 runs?");
  expect(body).toContain("one (id-one, 80 KiB)\ntwo (id-two, 80 KiB)");
  expect(harness.requests.filter((one) => one.startsWith("deleteRun"))).toHaveLength(2);
  expect(harness.get("button", "Delete (1)")).toBeTruthy();
  expect(harness.root.textContent).toContain("two goes on");
});

test("a row opens its notebook and the page of its run, and the focus returns to the row", async () => {
  await open(named("one", "two"));
  await harness.click("button", "Open the notebook of two");
  expect(harness.openNotebook).toHaveBeenCalledWith(expect.objectContaining({ name: "two" }), first.cell);
  harness.answers["run"] = () => example<wire.RunDetail>("run-detail");
  await harness.click("button", "two");
  await answered();
  expect(harness.root.querySelector(".fd-config")?.textContent).toBe("lr0.1optimizersgdnesterovTrue");
  expect(harness.root.querySelector(".fd-chart-tools")?.hasAttribute("open")).toBe(true);
  await harness.click("button", "‹ All runs");
  await answered();
  expect(document.activeElement?.getAttribute("data-run")).toBe("id-two");
});
