/** Computes how runs differ in their hyper-parameters, options, versions and code. */

import { structuredPatch, type StructuredPatchHunk } from "diff";

/** A code that differs so much that this takes longer, in milliseconds, is not compared line by line. */
const LONGEST_DIFF_MS = 2000;

/** The values of one key in all compared runs. A value that a run does not have is undefined. */
export interface Difference {
  readonly key: string;
  readonly texts: readonly (string | undefined)[];
  readonly same: boolean;
}

/** Return the values of all keys that any of the runs has. Keys with different values come first. */
export function differences(runs: readonly Readonly<Record<string, unknown>>[]): Difference[] {
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run)))].sort();
  const found = keys.map((key) => {
    const texts = runs.map((run) => (Object.hasOwn(run, key) ? textOf(run[key]) : undefined));
    return { key, texts, same: new Set(texts).size === 1 };
  });
  return [...found.filter(({ same }) => !same), ...found.filter(({ same }) => same)];
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

export type Mark = "+" | "-" | " ";

/** A line of a difference between two texts, with its numbers in both texts. */
export interface DiffLine {
  readonly mark: Mark;
  readonly text: string;
  readonly before: number | null;
  readonly after: number | null;
}

/** Return the parts in which two texts differ, none if they are the same, or null if it takes too long to find them. */
export function codeDifference(before: string, after: string): DiffLine[][] | null {
  const options = { context: 3, timeout: LONGEST_DIFF_MS };
  const patch = structuredPatch("", "", withEnd(before), withEnd(after), "", "", options);
  return patch?.hunks.map(linesOf) ?? null;
}

function linesOf({ oldStart, newStart, lines }: StructuredPatchHunk): DiffLine[] {
  let [before, after] = [oldStart, newStart];
  return lines.map((line) => {
    const mark = line.charAt(0) as Mark;
    const numbers = { before: mark === "+" ? null : before++, after: mark === "-" ? null : after++ };
    return { mark, text: line.slice(1), ...numbers };
  });
}

/** Return a text with one line break at its end, because cells with and without it have the same last line. */
function withEnd(text: string): string {
  return text.replace(/\n*$/, "\n");
}
