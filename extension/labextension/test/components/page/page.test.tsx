/** Tests of the table in the page of runs. */

import { act } from "react";

import { RunsPage } from "../../../src/components/page/runsPage";
import { RequestError } from "../../../src/net/requestError";
import { PAGE } from "../../../src/state/pages";
import type * as wire from "../../../src/wire";
import { example } from "../../examples";
import { Harness } from "../../harness";

let harness: Harness;
const table = example<wire.RunTable>("run-table");
const first = table.runs[0] as wire.RunRow;
const MANY = 5000;
const ALL = { text: "", status: "", cluster: "", tag: "" };
const NEWEST = { column: "started", descending: true };
const kept = new Map<string, unknown>();
const store = {
  fetch: (key: string) => Promise.resolve(kept.get(key)) as Promise<undefined>,
  save: (key: string, value: unknown) => Promise.resolve(kept.set(key, value)),
};

const detail = example<wire.RunDetail>("run-detail");
/** The server's answer to a change of a text that someone else has changed. */
const changed = { code: "changed" as const, message: "the text was changed elsewhere", runs: [] };

const many = Array.from({ length: MANY }, (_, n): wire.RunRow => {
  return { ...first, id: `run-${n}`, name: `name-${n}`, status: "finished", goes_on: false };
});

function page(_: unknown, __: unknown, offset: number, limit: number): wire.RunTable {
  return { ...table, runs: many.slice(offset, offset + limit), offset, total: MANY };
}

beforeEach(() => {
  kept.clear();
  harness = new Harness();
  harness.answers["table"] = page;
  harness.answers["editRun"] = (_: string, edit: Partial<wire.RunRow>) => ({ ...first, ...edit });
  harness.answers["run"] = () => detail;
});
afterEach(() => harness.close());

async function open(answer?: () => wire.RunTable): Promise<void> {
  if (answer) harness.answers["table"] = answer;
  await harness.open(true, <RunsPage store={store} />);
  await harness.receive({ kind: "runs", runs: [], total: 0 });
  await answered();
}

/** Let the page receive and render the answers to its requests. */
async function answered(): Promise<void> {
  for (let n = 0; n < 3; n += 1) await harness.receive();
}

/** Return an answer with runs of these names. */
const named = (...names: string[]) => {
  const runs = names.map((name) => ({ ...first, id: `id-${name}`, name, goes_on: false }));
  return () => ({ ...table, runs, total: runs.length });
};

const rows = () => [...harness.root.querySelectorAll<HTMLElement>("tbody tr:not([aria-hidden])")];
const heads = () => [...harness.root.querySelectorAll("thead th")].map((head) => head.textContent);
const asked = () => harness.requests.filter((one) => one.startsWith("table"));
const request = (filter: object, sort: object, offset: number) =>
  `table ${JSON.stringify(filter)} ${JSON.stringify(sort)} ${offset} ${PAGE}`;

async function press(element: Element | null, key: string): Promise<void> {
  await act(async () => {
    element?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    await Promise.resolve();
  });
  await answered();
}

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
  await open(() => ({ ...table, series: ["loss", "val_accuracy"] }));
  const columns = ["lr", "nesterov", "optimizer", "loss, last", "loss, lowest"];
  const more = ["val_accuracy, last", "val_accuracy, highest"];
  expect(heads().slice(5, -4)).toEqual([...columns, ...more]);
  expect(rows()[0]?.textContent).toContain("0.1Truesgd0.210.2");
});

test("a click on a header sorts by the column, the better runs first, and another click reverses it", async () => {
  await open(() => ({ ...table, series: ["accuracy"] }));
  await harness.click("button", "accuracy, highest");
  const column = "series.accuracy.highest";
  expect(asked().at(-1)).toBe(request(ALL, { column, descending: true }, 0));
  await harness.click("button", /^accuracy, highest/);
  expect(asked().at(-1)).toBe(request(ALL, { column, descending: false }, 0));
  const sorted = harness.root.querySelectorAll("[aria-sort]");
  expect([...sorted].map((head) => head.getAttribute("aria-sort"))).toEqual(["ascending"]);
});

test("the server applies the filter by tag", async () => {
  jest.useFakeTimers();
  await open();
  await harness.type("combobox", "Filter by tag", "baseline");
  await act(async () => {
    await jest.advanceTimersByTimeAsync(1000);
  });
  jest.useRealTimers();
  expect(asked().at(-1)).toBe(request({ ...ALL, tag: "baseline" }, NEWEST, 0));
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

test("the chosen columns are kept", async () => {
  await open();
  await harness.click("checkbox", "Notes");
  await harness.click("checkbox", "loss, highest");
  expect(heads()).not.toContain("Notes");
  harness.close();
  harness = new Harness();
  harness.answers["table"] = page;
  await open();
  expect(heads()).not.toContain("Notes");
  expect(heads()).toContain("loss, highest");
});

test.each([
  ["Name of one", "better", { name: "better" }, { name: "one" }],
  ["Tags of one, separated by commas", "a, b ,a,", { tags: ["a", "b"] }, { tags: first.tags }],
  ["Notes of one", "<b>good</b>", { notes: "<b>good</b>" }, { notes: detail.notes }],
])("%s are changed in place with Enter", async (label, text, edit, before) => {
  await open(named("one"));
  await harness.click("button", `Edit: ${label}`);
  expect(document.activeElement).toBe(harness.get("textbox", label));
  await harness.type("textbox", label, text);
  await press(document.activeElement, "Enter");
  expect(harness.requests).toContain(`editRun "id-one" ${JSON.stringify(edit)} ${JSON.stringify(before)}`);
  expect(document.activeElement).toBe(harness.get("button", `Edit: ${label}`));
});

test("the user edits all of the notes, of which a row has only the beginning", async () => {
  const whole = "n".repeat(3000);
  await open(() => ({ ...table, runs: [{ ...first, notes: `${whole.slice(0, 999)}…` }] }));
  harness.answers["run"] = () => ({ ...detail, notes: whole });
  await harness.click("button", "Edit: Notes of first-cnn");
  expect(harness.requests.filter((one) => one.startsWith("editRun"))).toEqual([]);
  expect((harness.get("textbox", "Notes of first-cnn") as HTMLTextAreaElement).value).toBe(whole);
  await harness.type("textbox", "Notes of first-cnn", `${whole}!`);
  await press(document.activeElement, "Enter");
  const [edit, before] = [{ notes: `${whole}!` }, { notes: whole }].map((texts) => JSON.stringify(texts));
  expect(harness.requests).toContain(`editRun ${JSON.stringify(first.id)} ${edit} ${before}`);
});

test("notes that cannot be read are not edited", async () => {
  await open(named("one"));
  harness.answers["run"] = () => {
    throw new RequestError({ code: "failed", message: "the notes cannot be read", runs: [] }, 500);
  };
  await harness.click("button", "Edit: Notes of one");
  expect(harness.root.querySelector("textarea")).toBeNull();
  expect(harness.root.textContent).toContain("the notes cannot be read");
});

test("a text is saved to its run, even if the row shows another run by then", async () => {
  await open(named("one"));
  await harness.click("button", "Edit: Name of one");
  harness.answers["table"] = named("two", "one");
  await harness.receive({ kind: "runs", runs: [], total: 2 });
  await answered();
  await harness.type("textbox", "Name of one", "better");
  await press(document.activeElement, "Enter");
  expect(harness.requests).toContain('editRun "id-one" {"name":"better"} {"name":"one"}');
});

test("Escape changes nothing, and a text that the server refuses stays in the field", async () => {
  await open(named("one"));
  await harness.click("button", "Edit: Name of one");
  await harness.type("textbox", "Name of one", "other");
  await press(document.activeElement, "Escape");
  expect(harness.requests.filter((one) => one.startsWith("editRun"))).toEqual([]);
  harness.answers["editRun"] = () => {
    throw new RequestError({ code: "invalid", message: "the name is too long", runs: [] }, 400);
  };
  await harness.click("button", "Edit: Name of one");
  await harness.type("textbox", "Name of one", "long");
  await press(document.activeElement, "Enter");
  expect((harness.get("textbox", "Name of one") as HTMLInputElement).value).toBe("long");
  expect(harness.root.textContent).toContain("the name is too long");
});

test.each([
  ["Name of one", "own", { summary: { ...detail.summary, name: "theirs" } }, { name: "own" }, { name: "theirs" }],
  [
    "Tags of one, separated by commas",
    "own",
    { tags: ["their", "tags"] },
    { tags: ["own"] },
    { tags: ["their", "tags"] },
  ],
  ["Notes of one", "own", { notes: "" }, { notes: "own" }, { notes: "" }],
])("%s that were changed elsewhere are replaced only by a second Enter", async (label, text, other, edit, before) => {
  await open(named("one"));
  await harness.click("button", `Edit: ${label}`);
  harness.answers["editRun"] = () => {
    throw new RequestError(changed, 409);
  };
  harness.answers["run"] = () => ({ ...detail, ...other });
  await harness.type("textbox", label, text);
  await press(document.activeElement, "Enter");
  await answered();
  const field = harness.get("textbox", label) as HTMLInputElement;
  expect([field.value, field.getAttribute("aria-invalid")]).toEqual([text, "true"]);
  expect(harness.root.textContent).toContain(changed.message);
  const count = () => harness.requests.filter((one) => one.startsWith("editRun")).length;
  const sent = count();
  await act(async () => {
    field.blur();
    await Promise.resolve();
  });
  expect([count(), (harness.get("textbox", label) as HTMLInputElement).value]).toEqual([sent, text]);
  harness.answers["editRun"] = () => first;
  field.focus();
  await press(field, "Enter");
  await answered();
  expect(harness.requests).toContain(`editRun "id-one" ${JSON.stringify(edit)} ${JSON.stringify(before)}`);
  expect(harness.get("button", `Edit: ${label}`)).toBeTruthy();
});

test("Escape after a change elsewhere discards the text", async () => {
  await open(named("one"));
  await harness.click("button", "Edit: Name of one");
  harness.answers["editRun"] = () => {
    throw new RequestError(changed, 409);
  };
  await harness.type("textbox", "Name of one", "own");
  await press(document.activeElement, "Enter");
  await answered();
  await press(harness.get("textbox", "Name of one"), "Escape");
  expect(harness.root.querySelector(".fd-cell-field")).toBeNull();
  expect(harness.requests.filter((one) => one.startsWith("editRun"))).toHaveLength(1);
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
