/** Numbers, sizes and times as text. */

import { sum } from "d3-array";

import type { GpuUsage, RunSummary } from "./wire";

const NOTHING = "–";

/** Return a number with few digits: 0.3139, 3,578, 1.20e-5. */
export function number(value: number | null): string {
  if (value === null) return NOTHING;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace("e+", "e");
  return size >= 1000 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(4)));
}

/** Return a size in bytes: 640 MB, 2.4 GB. */
export function bytes(value: number | null): string {
  if (value === null) return NOTHING;
  if (value < 1e3) return `${Math.round(value)} B`;
  if (value < 1e6) return `${Math.round(value / 1e3)} kB`;
  if (value < 1e9) return `${Math.round(value / 1e6)} MB`;
  return `${(value / 1e9).toFixed(1)} GB`;
}

/** Return used and total bytes: 2.4 GB / 17.2 GB. */
export function bytesOf(value: number | null, total: number | null): string {
  return total === null ? bytes(value) : `${bytes(value)} / ${bytes(total)}`;
}

/** Return bytes per second. */
export function rate(value: number | null): string {
  return value === null ? NOTHING : `${bytes(value)}/s`;
}

export function percent(value: number | null): string {
  return value === null ? NOTHING : `${Math.round(value)} %`;
}

/** Return the duration of a step: 33.1 ms, 1.2 s. */
export function stepTime(seconds: number | null): string {
  if (seconds === null) return NOTHING;
  return seconds < 1 ? `${number(Number((seconds * 1000).toPrecision(3)))} ms` : `${number(seconds)} s`;
}

/** Return seconds as 0:07, 1:02:03 or 2 d 3 h. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  const two = (part: number) => String(part).padStart(2, "0");
  if (days) return `${days} d ${hours % 24} h`;
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

/** Return the time of day of a time in seconds since the epoch, with the date unless it is today. */
export function clock(time: number, now: Date, locale?: string): string {
  const date = new Date(time * 1000);
  const hour = date.toLocaleTimeString(locale, { hour: "2-digit", minute: "2-digit" });
  if (date.toDateString() === now.toDateString()) return hour;
  return `${date.toLocaleDateString(locale, { month: "short", day: "numeric" })}, ${hour}`;
}

/** Return the used share, from 0 to 1; null if one of the values is unknown. */
export function share(value: number | null, total: number | null): number | null {
  return value === null || !total ? null : Math.min(1, Math.max(0, value / total));
}

/** Return the memory that all these GPUs use; null if none is known. */
export function gpuMemory(gpus: readonly GpuUsage[]): number | null {
  const known = gpus.map((gpu) => gpu.memory).filter((memory) => memory !== null);
  return known.length ? sum(known) : null;
}

/** Return the name of a run, or its id if it has no name. */
export function title(run: Pick<RunSummary, "id" | "name">): string {
  return run.name || run.id;
}

/** Return the last part of a path. */
export function basename(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}
