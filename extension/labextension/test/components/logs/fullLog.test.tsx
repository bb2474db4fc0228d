/** Tests of the log of a run at full width. */

import { act } from "react";

import { FullLog } from "../../../src/components/logs/fullLog";
import { LogPage } from "../../../src/components/logs/logPage";
import { RequestError } from "../../../src/net/requestError";
import type * as wire from "../../../src/wire";
import { example } from "../../examples";
import { Harness } from "../../harness";

const ID = "20260921-142640-9c1e";
const STARTED = 1_790_000_000;
const LINES = Array.from({ length: 20_000 }, (_, n) => `line ${n}\n`);
const WHOLE = LINES.join("");

let harness: Harness;

/** Return a part of a log, as the server does. */
function part(rank: number, offset: number, limit = 100_000): wire.LogPart {
  const text = WHOLE.slice(offset, offset + limit);
  return { run: ID, rank, worker: null, offset, next: offset + text.length, size: WHOLE.length, text };
}

const rows = () => [...harness.root.querySelectorAll(".fd-log-row")];
const offsetOf = (line: number) => LINES.slice(0, line).join("").length;

async function search(text: string, ...matches: wire.LogMatch[]): Promise<void> {
  harness.answers["searchLogs"] = (): wire.LogMatches => ({ id: ID, matches, complete: true });
  await harness.type("searchbox", "Search in the log", text);
  await act(() => new Promise((done) => setTimeout(done, 400)));
}

async function press(key: string, shiftKey = false): Promise<void> {
  await act(async () => {
    const event = new KeyboardEvent("keydown", { key, shiftKey, bubbles: true });
    harness.get("searchbox", "Search in the log").dispatchEvent(event);
    await new Promise((done) => setTimeout(done));
  });
}

beforeEach(async () => {
  harness = new Harness();
  harness.answers["log"] = (_id: string, rank: number, offset: number, limit: number) => part(rank, offset, limit);
  await harness.open(true, <FullLog id={ID} ranks={[0, 1]} started={STARTED} />);
});
afterEach(() => {
  harness.close();
});

test("a log follows its end, and only the visible rows are in the page", async () => {
  expect(harness.watches.at(-1)?.logs).toEqual([{ run: ID, rank: 0, worker: null, offset: -16000 }]);
  await harness.receive({ kind: "log", part: part(0, WHOLE.length - 16_000) });
  expect(rows().at(-1)?.textContent).toBe("line 19999");
  expect(rows().length).toBeLessThan(60);
  expect(await harness.violations()).toEqual([]);
});

test("a match loads the part of the log around it, and Enter shows the next one on its rank", async () => {
  const match = (rank: number, line: number) => {
    return { rank, line: line + 1, offset: offsetOf(line), time: STARTED, text: `line ${line}` };
  };
  await search("LINE 7000", match(0, 7000), match(1, 12_000));
  expect(harness.root.querySelector("[aria-current]")?.textContent).toBe("line 7000");
  expect(harness.root.querySelector("[aria-current] mark")?.textContent).toBe("line 7000");
  expect(harness.root.textContent).toMatch(/Match 1 of 2 · rank 0, line 7001 · 2026-09-2\d \d\d:\d\d:\d\d/);
  await press("Enter");
  expect(harness.get("log", "Log of rank 1").querySelector("[aria-current]")?.textContent).toBe("line 12000");
  await press("Enter", true);
  expect(harness.get("log", "Log of rank 0")).toBeTruthy();
});

test("a search is aborted when the text changes or the log is closed, which is no problem", async () => {
  const signals: AbortSignal[] = [];
  const endless = (_id: string, _text: string, _ranks: string, signal: AbortSignal) => {
    signals.push(signal);
    const problem: wire.Problem = { code: "unreachable", message: "aborted", runs: [] };
    return new Promise((_, reject) => signal.addEventListener("abort", () => reject(new RequestError(problem, 0))));
  };
  for (const text of ["first", "second"]) {
    harness.answers["searchLogs"] = endless;
    await harness.type("searchbox", "Search in the log", text);
    await act(() => new Promise((done) => setTimeout(done, 400)));
  }
  expect(signals.map(({ aborted }) => aborted)).toEqual([true, false]);
  harness.close();
  await act(() => new Promise((done) => setTimeout(done)));
  expect(signals.map(({ aborted }) => aborted)).toEqual([true, true]);
  expect(harness.model.state.problems).toEqual([]);
});

test("a search without matches says so", async () => {
  await search("nothing");
  expect(harness.root.textContent).toContain("No matches");
});

test("a time shows the line that was printed then", async () => {
  harness.answers["logAt"] = (_id: string, rank: number) => part(rank, offsetOf(9000), 4);
  await harness.type("textbox", "Time to jump to", "+1:30");
  await harness.click("button", "Jump");
  expect(harness.requests).toContain(`logAt "${ID}" 0 1790000090`);
  expect(harness.root.querySelector("[aria-current]")?.textContent).toBe("line 9000");
});

test("markup in a log is text", async () => {
  const text = "<img src=x onerror=alert(1)>\n";
  await harness.receive({ kind: "log", part: { ...part(0, 0), text, next: text.length, size: text.length } });
  expect(rows().map((row) => row.textContent)).toEqual([text.trim()]);
  expect(harness.root.querySelector("img")).toBeNull();
});

test("the tab is named by the run and the rank, also after the run was renamed", async () => {
  const setTitle = jest.fn();
  harness.answers["run"] = () => example<wire.RunDetail>("run-detail");
  await harness.open(true, <LogPage id={ID} rank={1} setTitle={setTitle} />);
  await act(() => new Promise((done) => setTimeout(done)));
  expect(setTitle).toHaveBeenLastCalledWith("Log of first-cnn, rank 1");
  await harness.type("combobox", "Log of", "0");
  expect(setTitle).toHaveBeenLastCalledWith("Log of first-cnn, rank 0");
  const { runs, ...rest } = example<wire.RunsMessage>("runs");
  await harness.receive({ ...rest, runs: runs.map((run) => (run.id === ID ? { ...run, name: "best" } : run)) });
  expect(setTitle).toHaveBeenLastCalledWith("Log of best, rank 0");
});
