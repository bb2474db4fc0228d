/** The text of a log, assembled from the parts that the server sends. */

import type { LogPart, LogRequest } from "../wire";

/** A followed log: its text begins at byte `offset`, and the next part at byte `next`. */
export interface Log {
  readonly text: string;
  readonly offset: number;
  readonly next: number;
  readonly size: number;
}

/** The size of a log that the page keeps, in characters: about 4,000 lines. */
export const MOST = 400_000;

/** The size of a log that is fetched first, in bytes from its end. */
export const TAIL = -16_000;

type LogName = Pick<LogRequest, "run" | "rank" | "worker">;

/** Return a key for the log of a rank in a run, or of a worker. */
export function logKey({ run, rank, worker }: LogName): string {
  return worker === null ? `run ${run} ${rank}` : `worker ${worker}`;
}

/** Return a log with a new part; bytes that it has already are skipped. */
export function append(log: Log | undefined, part: LogPart): Log {
  if (log && part.next <= log.next && part.size >= log.next) return { ...log, size: part.size };
  // A log that became shorter was truncated and written again.
  const known = log && part.size >= log.next ? log : undefined;
  if (!known) return trim({ text: part.text, offset: part.offset, next: part.next, size: part.size });
  const gap = part.offset > known.next ? "\n…\n" : "";
  const text = known.text + gap + fresh(part, known.next);
  return trim({ text, offset: known.offset, next: part.next, size: part.size });
}

/** Return the text of a part from a byte on. */
function fresh(part: LogPart, next: number): string {
  if (part.offset >= next) return part.text;
  return new TextDecoder().decode(new TextEncoder().encode(part.text).slice(next - part.offset));
}

/** Return a log without the beginning that exceeds the size that the page keeps. */
function trim(log: Log): Log {
  const { text } = log;
  if (text.length <= MOST) return log;
  const cut = text.indexOf("\n", text.length - MOST);
  const end = text.slice(cut < 0 ? text.length - MOST : cut + 1);
  return { ...log, text: end, offset: log.next - new TextEncoder().encode(end).length };
}

// eslint-disable-next-line no-control-regex -- escape sequences begin with a control character
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;

/** Return a log as a terminal shows it: without colours, and with the final text of overwritten lines. */
export function readable(text: string): string {
  return text
    .replace(ESCAPES, "")
    .replace(/\r+\n/g, "\n")
    .split("\n")
    .map((line) => line.slice(line.replace(/\r+$/, "").lastIndexOf("\r") + 1).replace(/\r+$/, ""))
    .join("\n");
}
