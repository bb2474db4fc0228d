/** Tests of the columns in the page of runs, and of the requests for their values. */

import {
  addedColumns,
  chosenColumn,
  columnsOf,
  shownColumns,
  type Choices,
} from "../../../src/components/page/columns";
import { ENGLISH } from "../../../src/i18n";
import type * as wire from "../../../src/wire";
import { ALL, answered, asked, harness, heads, kept, NEWEST, open, renew, request, rows, table } from "./tablePage";

const series = Array.from({ length: 20 }, (_, n) => `s${n + 10}`);
const config = Array.from({ length: 12 }, (_, n) => `p${n + 10}`);
const parts = ["last", "lowest", "highest"];
const defaults = [
  ...series.slice(0, 4).flatMap((name) => parts.map((part) => `series.${name}.${part}`)),
  ...config.slice(0, 8).map((name) => `config.${name}`),
];
const names = { series, config, defaults, tags: [] };

/** Answer with a run that has the values of the columns that the server sends, and of those that the page adds. */
function wide(_: unknown, __: unknown, added: string[]): wire.RunTable {
  const columns = [...defaults, ...added];
  const values = columns.map((_, n) => n + 100);
  return { ...table, ...names, columns, runs: table.runs.map((run) => ({ ...run, values })) };
}

async function openWide(): Promise<void> {
  harness.answers["table"] = wide;
  await open();
}

test("of many names, the first four series and eight hyper-parameters have columns", async () => {
  await openWide();
  const lowest = series.slice(0, 4).flatMap((name) => [`${name}, last`, `${name}, lowest`]);
  expect(heads().slice(5, -4)).toEqual([...config.slice(0, 8), ...lowest]);
  expect(rows()[0]?.textContent).toContain("112113114115116117118119100101103104106107109110");
  expect(harness.get("checkbox", "s29, highest")).toBeTruthy();
  expect(harness.get("checkbox", "p21")).toBeTruthy();
  expect(asked()).toEqual([request(ALL, NEWEST, 0)]);
});

test("the values of a column that the user adds are requested, also after a reload", async () => {
  await openWide();
  await harness.click("checkbox", "s29, last");
  await answered();
  await harness.click("checkbox", "p21");
  await answered();
  const added = ["series.s29.last", "config.p21"];
  const reloaded = request(ALL, NEWEST, 0, added);
  expect(asked().slice(1)).toEqual([request(ALL, NEWEST, 0, added.slice(0, 1)), reloaded]);
  expect(rows()[0]?.textContent).toMatch(/119121100101.*110120/);
  harness.close();
  renew();
  await openWide();
  expect(asked()).toEqual([reloaded]);
  expect(heads()).toContain("s29, last");
});

test("the rows stay on the page until the values of an added column arrive", async () => {
  await openWide();
  let answer: (table: wire.RunTable) => void = () => undefined;
  harness.answers["table"] = () => new Promise<wire.RunTable>((resolve) => (answer = resolve));
  await harness.click("checkbox", "s29, last");
  await answered();
  expect(rows()[0]?.textContent).toContain("first-cnn");
  expect(heads()).toContain("s29, last");
  answer({ ...wide(0, 0, ["series.s29.last"]), total: 1 });
  await answered();
  expect(rows()[0]?.textContent).toContain("120");
});

test("the chosen columns are kept, and can be restored", async () => {
  await openWide();
  await harness.click("checkbox", "Notes");
  await harness.click("checkbox", "s10, highest");
  expect(kept.get("farandole:columns")).toEqual({ notes: false, "series.s10.highest": true });
  harness.close();
  renew();
  await openWide();
  expect(heads()).not.toContain("Notes");
  expect(heads()).toContain("s10, highest");
  await harness.click("checkbox", "Notes");
  expect(kept.get("farandole:columns")).toEqual({ "series.s10.highest": true });
  await harness.click("button", "Restore the default columns");
  expect(kept.get("farandole:columns")).toEqual({});
  expect(heads()).not.toContain("s10, highest");
});

test("a value of None, no value, and a number are different texts", async () => {
  const columns = ["series.loss.last", "config.a", "config.b", "config.c"];
  const runs = table.runs.map((run) => ({ ...run, values: [null, "None", null, 1234567] }));
  await open(() => ({ ...table, columns, runs, series: ["loss"], config: ["a", "b", "c"], defaults: columns }));
  expect(rows()[0]?.textContent).toContain("None–1234567–");
});

test("there is room for 60 added columns, and for fewer if their names are long", () => {
  const columns = columnsOf(ENGLISH, { ...names, series: Array.from({ length: 99 }, (_, n) => `t${n}`) });
  const all: Choices = Object.fromEntries(columns.filter(({ sent }) => !sent).map(({ key }) => [key, true]));
  const added = addedColumns({ ...all, "series.s10.highest": true }, NEWEST, columns);
  expect(added).toHaveLength(60);
  const shown = shownColumns(columns, { ...all, cluster: true }, NEWEST).filter((column) => !column.shown);
  // The cluster is a column that needs no value.
  expect(shown.map(({ key }) => key)).toEqual(expect.arrayContaining([...added, "cluster"]));
  expect(shown).toHaveLength(61);
  const long = Object.fromEntries(Array.from({ length: 9 }, (_, n) => [`config.${"ä".repeat(100)}${n}`, true]));
  expect(addedColumns(long, NEWEST, null)).toHaveLength(7);
});

test("the menu says that there is no room, and hides columns", async () => {
  const added = Object.fromEntries(Array.from({ length: 60 }, (_, n) => [`series.t${n}.last`, true]));
  const many = { ...names, series: [...series, ...Array.from({ length: 60 }, (_, n) => `t${n}`)] };
  kept.set("farandole:columns", added);
  harness.answers["table"] = (...all: [unknown, unknown, string[]]) => ({
    ...wide(...all),
    ...many,
    columns: defaults,
  });
  await open();
  const box = (name: string) => harness.get("checkbox", name) as HTMLInputElement;
  expect(box("s29, last").disabled).toBe(true);
  expect([box("p10").disabled, box("Cluster").disabled, box("Notes").disabled]).toEqual([false, false, false]);
  expect(harness.root.textContent).toContain("There is no room for more columns");
  expect(await harness.violations()).toEqual([]);
  await harness.click("button", "Restore the default columns");
  expect(box("s29, last").disabled).toBe(false);
});

test("choices contain only what differs from the default columns", () => {
  const [name] = columnsOf(ENGLISH, names).slice(1);
  if (!name) throw new Error("there is no column");
  expect(chosenColumn({}, name, false, null)).toEqual({ status: false });
  expect(chosenColumn({ status: false, notes: false }, name, true, null)).toEqual({ notes: false });
});

test("columns whose names have vanished are no longer requested, and are dropped with the next choice", async () => {
  const gone = Object.fromEntries(Array.from({ length: 60 }, (_, n) => [`config.gone${n}`, true]));
  kept.set("farandole:columns", { ...gone, "config.p21": true });
  await openWide();
  expect(asked().at(-1)).toBe(request(ALL, NEWEST, 0, ["config.p21"]));
  expect(heads()).toContain("p21");
  expect(harness.root.textContent).not.toContain("There is no room");
  await harness.click("checkbox", "Notes");
  expect(kept.get("farandole:columns")).toEqual({ "config.p21": true, notes: false });
});

test("while names may be missing, the chosen columns stay", async () => {
  const chosen = { "config.late": true };
  kept.set("farandole:columns", chosen);
  await open(() => ({ ...wide(0, 0, []), complete: false }));
  await harness.click("checkbox", "Notes");
  expect(asked()).toEqual([request(ALL, NEWEST, 0, ["config.late"])]);
  expect(kept.get("farandole:columns")).toEqual({ ...chosen, notes: false });
});

test("the sorted column is shown and requested, and another order follows if the user hides it", async () => {
  const sort = { column: "series.s29.last", descending: false };
  kept.set("farandole:sort", sort);
  await openWide();
  expect(asked().at(-1)).toBe(request(ALL, sort, 0, [sort.column]));
  expect(harness.root.querySelector("[aria-sort]")?.textContent).toContain("s29, last");
  await harness.click("checkbox", "s29, last");
  await answered();
  expect(asked().at(-1)).toBe(request(ALL, NEWEST, 0));
  expect(heads()).not.toContain("s29, last");
});

test("the newest runs come first if the sorted column has vanished", async () => {
  kept.set("farandole:sort", { column: "config.gone", descending: false });
  await openWide();
  expect(asked().at(-1)).toBe(request(ALL, NEWEST, 0));
  expect(harness.root.querySelector("[aria-sort]")?.textContent).toContain("Start");
});
