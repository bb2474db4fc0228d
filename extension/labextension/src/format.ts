/** Formats numbers, sizes and times as text. */

import { sum } from "d3-array";

import type { ConfigValue, GpuUsage, RunSummary } from "./wire";

const NOTHING = "–";

const SMALL_UNITS = [
  [1, "B"],
  [2 ** 10, "KiB"],
  [2 ** 20, "MiB"],
] as const;

/** Format a number with few digits, e.g. 0.3139, 3,578 or 1.20e-5. */
export function number(value: number | null): string {
  if (value === null) return NOTHING;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace("e+", "e");
  return size >= 1000 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(4)));
}

/** Format a number with at most three significant digits, e.g. 12.5 or 812. */
export function roundedNumber(value: number): string {
  return number(Number(value.toPrecision(3)));
}

/** Format a number of bytes in the units of Python's `sizes.py`, e.g. 640 MiB or 2.4 GiB. */
export function bytes(value: number | null): string {
  if (value === null) return NOTHING;
  for (const [unit, name] of SMALL_UNITS) {
    const rounded = Math.round(value / unit);
    if (rounded < 1024) return `${rounded} ${name}`;
  }
  return `${(value / 2 ** 30).toFixed(1)} GiB`;
}

/** Format the used and the total bytes, e.g. 2.4 GiB / 16.0 GiB. */
export function bytesOf(value: number | null, total: number | null): string {
  return total === null ? bytes(value) : `${bytes(value)} / ${bytes(total)}`;
}

/** Format a data rate in bytes per second, e.g. 640 KiB/s. */
export function rate(value: number | null): string {
  return value === null ? NOTHING : `${bytes(value)}/s`;
}

export function percent(value: number | null): string {
  return value === null ? NOTHING : `${Math.round(value)} %`;
}

/** Format the duration of a step, e.g. 33.1 ms or 1.2 s. */
export function stepTime(seconds: number | null): string {
  if (seconds === null) return NOTHING;
  return seconds < 1 ? `${roundedNumber(seconds * 1000)} ms` : `${number(seconds)} s`;
}

/** Format a number of seconds, e.g. 0:07, 1:02:03 or 2 d 3 h. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  if (days) return `${days} d ${hours % 24} h`;
  const second = twoDigits(whole % 60);
  return hours ? `${hours}:${twoDigits(minutes)}:${second}` : `${minutes}:${second}`;
}

/**
 * Format a time in seconds since the epoch as the browser's local time, e.g. 2026-11-25 14:05, or 14:05 if it is today.
 *
 * Every locale gets this text, which has the form of Python's `times.py` and of the hub's `moment.html`.
 */
export function clock(time: number, now: Date): string {
  return preciseClock(time, now).slice(0, -":00".length);
}

/** Format a time in the form of `clock` with seconds, e.g. 2026-11-25 14:05:12. */
export function preciseClock(time: number, now: Date): string {
  const local = new Date(time * 1000);
  return local.toDateString() === now.toDateString() ? timeOfDay(local) : `${date(local)} ${timeOfDay(local)}`;
}

/** Format the day of a time as the browser's local date, e.g. 2026-11-25. */
export function date(local: Date): string {
  return [local.getFullYear(), local.getMonth() + 1, local.getDate()].map(twoDigits).join("-");
}

/** Format a time without its day, e.g. 14:05:12. */
export function timeOfDay(local: Date): string {
  return [local.getHours(), local.getMinutes(), local.getSeconds()].map(twoDigits).join(":");
}

function twoDigits(value: number): string {
  return String(value).padStart(2, "0");
}

/** Return `value` as a share of `total`, from 0 to 1, or null if either of them is unknown. */
export function share(value: number | null, total: number | null): number | null {
  return value === null || !total ? null : Math.min(1, Math.max(0, value / total));
}

/** Return the memory that is in use on all these GPUs, in bytes, or null if it is unknown for every GPU. */
export function gpuMemory(gpus: readonly GpuUsage[]): number | null {
  const known = gpus.map((gpu) => gpu.memory).filter((memory) => memory !== null);
  return known.length ? sum(known) : null;
}

/** Return a hyper-parameter as the user wrote it in Python. It is exact, unlike the values of series. */
export function configText(value: ConfigValue | undefined): string {
  if (value === undefined) return NOTHING;
  if (value === null) return "None";
  return typeof value === "boolean" ? (value ? "True" : "False") : String(value);
}

/** Return the name of a run, or the run's id if it has no name. */
export function title(run: Pick<RunSummary, "id" | "name">): string {
  return run.name || run.id;
}

/** Return the last component of a path. */
export function basename(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}
