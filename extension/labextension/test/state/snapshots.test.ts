/** Tests of the list of snapshots by day. */

import { ENGLISH } from "../../src/i18n";
import { byDay, dayText, pathIn } from "../../src/state/snapshots";

const at = (month: number, day: number, hour: number) => new Date(2026, month - 1, day, hour).getTime() / 1000;
const snapshot = (id: string, time: number) => ({ id, time, message: "" });

test("snapshots are grouped by the day in the browser's time zone", () => {
  const all = [snapshot("a", at(11, 30, 14)), snapshot("b", at(11, 30, 0)), snapshot("c", at(11, 29, 23))];
  expect(byDay(all).map((day) => [day.date, day.snapshots.map(({ id }) => id)])).toEqual([
    ["2026-11-30", ["a", "b"]],
    ["2026-11-29", ["c"]],
  ]);
  expect(byDay([])).toEqual([]);
});

test.each([
  [new Date(2026, 10, 30, 14), "2026-11-30", "Today"],
  [new Date(2026, 10, 30, 14), "2026-11-29", "Yesterday"],
  [new Date(2026, 10, 30, 14), "2026-11-28", "2026-11-28"],
  [new Date(2026, 0, 1, 0, 30), "2025-12-31", "Yesterday"],
])("at %p, the day %p is %p", (now, day, shown) => {
  expect(dayText(ENGLISH, day, now)).toBe(shown);
});

test("paths are relative to the home", () => {
  expect([pathIn("", "data"), pathIn("data", "a.csv")]).toEqual(["data", "data/a.csv"]);
});
