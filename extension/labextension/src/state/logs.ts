/** Assembles the text of a log from the parts that the server sends. */

import type { LogPart, LogRequest } from "../wire";

/** The text of a log from byte `offset` of the file to byte `next` (exclusive). `size` is the size of the file. */
export interface Log {
  readonly text: string;
  readonly offset: number;
  readonly next: number;
  readonly size: number;
}

/** How many characters of a log the page keeps. This is about 4,000 lines. */
export const MOST = 400_000;

/** The first offset that the page requests from a log. It is negative because it counts bytes from the log's end. */
export const TAIL = -16_000;

type LogName = Pick<LogRequest, "run" | "rank" | "worker">;

/** Return the key of a log, which belongs to a rank of a run or to a worker. */
export function logKey({ run, rank, worker }: LogName): string {
  return worker === null ? `run ${run} ${rank}` : `worker ${worker}`;
}

/** Return a log with a new part appended. Bytes that the log already contains are skipped. */
export function append(log: Log | undefined, part: LogPart): Log {
  if (log && part.next <= log.next && part.size >= log.next) return { ...log, size: part.size };
  // If the file has become shorter, it was truncated and written again, so the known text is dropped.
  const known = log && part.size >= log.next ? log : undefined;
  if (!known) return trim({ text: part.text, offset: part.offset, next: part.next, size: part.size });
  const gap = part.offset > known.next ? "\n…\n" : "";
  const text = known.text + gap + fresh(part, known.next);
  return trim({ text, offset: known.offset, next: part.next, size: part.size });
}

/** Return the text of a part without the bytes before byte `next` of the log. */
function fresh(part: LogPart, next: number): string {
  if (part.offset >= next) return part.text;
  return new TextDecoder().decode(new TextEncoder().encode(part.text).slice(next - part.offset));
}

/** Remove the beginning of a log that has more than `MOST` characters. */
function trim(log: Log): Log {
  const { text } = log;
  if (text.length <= MOST) return log;
  const cut = text.indexOf("\n", text.length - MOST);
  const end = text.slice(cut < 0 ? text.length - MOST : cut + 1);
  return { ...log, text: end, offset: log.next - new TextEncoder().encode(end).length };
}

// eslint-disable-next-line no-control-regex -- escape sequences begin with a control character
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;

/** Return the final text that a terminal would show, without colours and without text that was overwritten. */
export function readable(text: string): string {
  return text
    .replace(ESCAPES, "")
    .replace(/\r+\n/g, "\n")
    .split("\n")
    .map((line) => line.slice(line.replace(/\r+$/, "").lastIndexOf("\r") + 1).replace(/\r+$/, ""))
    .join("\n");
}
