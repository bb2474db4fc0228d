/** Tests of the rows of a log and of the times to which the user jumps. */

import { logOf, pieces, prepend, rowAt, rowsOf } from "../../src/state/logRows";
import { MOST } from "../../src/state/logs";
import { parseTime } from "../../src/state/logTime";

const part = (text: string, offset = 0) => {
  return { run: "r", rank: 0, worker: null, offset, next: offset + text.length, size: 10_000_000, text };
};

test("rows have the bytes at which they begin, without colours and overwritten text", () => {
  const log = logOf(part("größe\n\u001b[31mred\u001b[0m\n 1%\r 2%\n\nend"));
  expect(rowsOf(log, 100)).toEqual([
    { offset: 0, text: "größe" },
    { offset: 8, text: "red" },
    { offset: 21, text: " 2%" },
    { offset: 29, text: "" },
    { offset: 30, text: "end" },
  ]);
});

test("a long line has several rows, and no character is split", () => {
  const rows = rowsOf(logOf(part("abc😀def\n")), 4);
  expect(rows.map(({ text }) => text)).toEqual(["abc", "😀de", "f"]);
  expect(rows.map(({ offset }) => rowAt(rows, offset))).toEqual([0, 1, 2]);
});

test("a part from the middle begins with a whole line, and earlier parts cut off the end of a long log", () => {
  const log = logOf(part(`rest\n${"later\n".repeat(60_000)}`, 400_000));
  expect(log.offset).toBe(400_005);
  const more = prepend(log, part(`cut\n${"earlier\n".repeat(12_000)}rest\n`, 304_000));
  expect(more.text.startsWith("earlier\n")).toBe(true);
  expect(more.text.length).toBeLessThanOrEqual(MOST);
  expect(more.next - more.offset).toBe(more.text.length);
});

test("occurrences are marked in capital and small letters", () => {
  expect(pieces("Loss and loss", "LOSS")).toEqual(["", "Loss", " and ", "loss", ""]);
  expect(pieces("İ loss", "loss")).toEqual(["İ loss"]);
});

test("a time is a time of day or counts from the start", () => {
  const started = new Date(2026, 8, 21, 23, 30, 0).getTime() / 1000;
  expect(parseTime("+90", started)).toBe(started + 90);
  expect(parseTime("+1:00:05", started)).toBe(started + 3605);
  expect(parseTime("23:45:10", started)).toBe(started + 910);
  expect(parseTime("00:15", started)).toBe(started + 2700);
  for (const text of ["", "noon", "24:00", "1:75", "90", "-5"]) expect(parseTime(text, started)).toBeNull();
});
