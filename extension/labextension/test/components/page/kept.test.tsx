/** Tests of the filters and the order in the page of runs, which JupyterLab keeps. */

import { act } from "react";

import { RunsPage } from "../../../src/components/page/runsPage";
import { ALL, asked, harness, kept, named, NEWEST, open, renew, request } from "./tablePage";

const LOSS = { column: "series.loss.lowest", descending: false };

/** Choose an option of a filter, and wait as long as the page waits for further choices. */
async function choose(role: string, name: string, value: string): Promise<void> {
  jest.useFakeTimers();
  await harness.type(role, name, value);
  await act(async () => {
    await jest.advanceTimersByTimeAsync(1000);
  });
  jest.useRealTimers();
}

test("the server applies the filter by tag", async () => {
  await open();
  await choose("combobox", "Filter by tag", "baseline");
  expect(asked().at(-1)).toBe(request({ ...ALL, tag: "baseline" }, NEWEST, 0));
});

test("the filters and the order are kept, and the first request after a reload has them", async () => {
  await open();
  await choose("searchbox", "Filter by name, notebook, tag, hyper-parameter or notes", "lr=0.1");
  await choose("combobox", "Filter by status", "failed");
  await choose("combobox", "Filter by tag", "baseline");
  await harness.click("button", "loss, lowest");
  const filter = { text: "lr=0.1", status: "failed", cluster: "", tag: "baseline" };
  expect(asked().at(-1)).toBe(request(filter, LOSS, 0));
  harness.close();
  renew();
  await open();
  expect(asked()).toEqual([request(filter, LOSS, 0)]);
  const fields = ["Filter by status", "Filter by cluster", "Filter by tag"].map((name) =>
    harness.get("combobox", name),
  );
  expect(fields.map((field) => (field as HTMLSelectElement).value)).toEqual(["failed", "", "baseline"]);
  expect(harness.root.querySelector("[aria-sort]")?.textContent).toContain("loss, lowest");
});

test("filters are shown and cleared with one click, which keeps the order", async () => {
  kept.set("farandole:filter", { text: "cnn", status: "", cluster: "gone", tag: "old" });
  kept.set("farandole:sort", LOSS);
  await open(named("one"));
  expect(harness.root.querySelector("[role=status]")?.textContent).toBe("1 run matches the filters");
  expect((harness.get("combobox", "Filter by cluster") as HTMLSelectElement).value).toBe("gone");
  expect((harness.get("combobox", "Filter by tag") as HTMLSelectElement).value).toBe("old");
  expect(await harness.violations()).toEqual([]);
  jest.useFakeTimers();
  await harness.click("button", "Clear filters");
  expect(document.activeElement).toBe(harness.get("searchbox", /^Filter by name/));
  await act(async () => {
    await jest.advanceTimersByTimeAsync(1000);
  });
  jest.useRealTimers();
  expect(asked().at(-1)).toBe(request(ALL, LOSS, 0));
  expect(kept.get("farandole:filter")).toEqual(ALL);
  expect(() => harness.get("button", "Clear filters")).toThrow("there is no button");
  expect(harness.root.querySelector("[role=status]")?.textContent).toBe("1 run");
});

test("if no run matches, the page says so, and the filters can be cleared", async () => {
  kept.set("farandole:filter", { ...ALL, tag: "gone" });
  await open(named());
  expect(harness.root.textContent).toContain("No run matches the filter");
  expect(harness.get("button", "Clear filters")).toBeTruthy();
});

test("without filters and runs, the page says that there is no run", async () => {
  await open(named());
  expect(harness.root.textContent).toContain("No run yet");
});

test.each([
  [null, "text"],
  [
    { text: 1, status: "over", cluster: null, tag: [] },
    { column: "__proto__", descending: true },
  ],
  [["a"], { column: "name" }],
  ["a", { column: 1, descending: false }],
])("kept values of another form are ignored: %j, %j", async (filter, sort) => {
  kept.set("farandole:filter", filter);
  kept.set("farandole:sort", sort);
  kept.set("farandole:columns", 1);
  await open();
  expect(asked()).toEqual([request(ALL, NEWEST, 0)]);
});

test("the page asks for no run until the kept values are read, and opens if that fails", async () => {
  const reads: ((reason: Error) => void)[] = [];
  const fetch = () => new Promise<undefined>((_, reject) => reads.push(reject));
  harness.answers["table"] = named("one");
  await harness.open(true, <RunsPage store={{ fetch, save: () => Promise.resolve() }} />);
  await harness.receive({ kind: "runs", runs: [], total: 0 });
  expect([asked(), harness.root.textContent]).toEqual([[], "RunsLoading…"]);
  reads.forEach((fail) => fail(new Error("the database is lost")));
  for (let n = 0; n < 3; n += 1) await harness.receive();
  expect(asked()).toEqual([request(ALL, NEWEST, 0)]);
  expect(harness.root.textContent).toContain("one");
});

test("the number of runs is that of the filter with which they were found", async () => {
  await open(named("one", "two"));
  const status = () => harness.root.querySelector("[role=status]")?.textContent;
  harness.answers["table"] = named("one");
  jest.useFakeTimers();
  await harness.type("combobox", "Filter by tag", "baseline");
  expect(status()).toBe("2 runs");
  await act(async () => {
    await jest.advanceTimersByTimeAsync(1000);
  });
  jest.useRealTimers();
  expect(status()).toBe("1 run matches the filters");
});
