/** Splits a part of a log into rows of equal height, of which the page renders only the visible ones. */

import type { LogPart } from "../wire";
import { MOST, readable, type Log } from "./logs";

/** A row of text, and the byte of the log at which it begins. */
export interface Row {
  readonly offset: number;
  readonly text: string;
}

/** The largest number of characters in a row if lines are not wrapped. A longer line has several rows. */
export const LONGEST_ROW = 2_000;

const bytes = (text: string) => new TextEncoder().encode(text).length;

/** Return a part as a log. A part from the middle of a log begins with the rest of a line, which is left out. */
export function logOf({ text, offset, next, size }: LogPart): Log {
  const cut = offset > 0 ? text.indexOf("\n") + 1 : 0;
  return { text: text.slice(cut), offset: offset + bytes(text.slice(0, cut)), next, size };
}

/** Return a log with the part before it. The end of a long log is left out. */
export function prepend(log: Log, part: LogPart): Log {
  const before = logOf(part);
  const text = before.text + log.text;
  if (text.length <= MOST) return { ...log, text, offset: before.offset };
  const end = text.lastIndexOf("\n", MOST - 1) + 1 || MOST;
  return { ...log, text: text.slice(0, end), offset: before.offset, next: before.offset + bytes(text.slice(0, end)) };
}

/** Return the rows of a log, as a terminal would show it. Lines with more characters than `columns` have several rows. */
export function rowsOf({ text, offset }: Log, columns: number): Row[] {
  const rows: Row[] = [];
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  for (const line of lines) {
    addRows(rows, offset, readable(line), columns);
    offset += bytes(line) + 1;
  }
  return rows;
}

function addRows(rows: Row[], offset: number, line: string, columns: number): void {
  for (let begin = 0; begin === 0 || begin < line.length;) {
    const end = endOf(line, begin, columns);
    const text = line.slice(begin, end);
    rows.push({ offset, text });
    offset += bytes(text);
    begin = Math.max(end, 1);
  }
}

/** Return where a row ends. A pair of surrogates, which is one character, stays together. */
function endOf(line: string, begin: number, columns: number): number {
  const end = Math.min(line.length, begin + Math.max(2, columns));
  return end < line.length && /[\uD800-\uDBFF]/.test(line.charAt(end - 1)) ? end - 1 : end;
}

/** Return the index of the last row that begins at or before a byte of the log. */
export function rowAt(rows: readonly Row[], offset: number): number {
  let [first, last] = [0, rows.length];
  while (last - first > 1) {
    const middle = (first + last) >> 1;
    if ((rows[middle]?.offset ?? 0) <= offset) first = middle;
    else last = middle;
  }
  return first;
}

/** Split a text into pieces. Every second piece is an occurrence of `needle`, in capital or small letters. */
export function pieces(text: string, needle: string): string[] {
  const [low, wanted] = [text.toLowerCase(), needle.toLowerCase()];
  // The lower case of a few characters has another length.
  if (!wanted || low.length !== text.length) return [text];
  const found: string[] = [];
  let begin = 0;
  for (let at = low.indexOf(wanted); at >= 0; at = low.indexOf(wanted, begin)) {
    found.push(text.slice(begin, at), text.slice(at, at + wanted.length));
    begin = at + wanted.length;
  }
  return [...found, text.slice(begin)];
}
