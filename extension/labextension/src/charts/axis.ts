/** Moves series to another x axis: to the epoch or the time at which their values were reported. */

import { scaleLinear } from "d3-scale";

import type { Numbers, Series } from "../wire";
import { union } from "./comparison";
import type { Charted } from "./plot";

/** What the x axis shows: the step or epoch that the run has reported, the epoch, or the seconds since the start. */
export type Axis = "reported" | "epoch" | "time";

type Points = Pick<Series, "x" | "time" | "epoch">;

const LABELS = { epoch: "epoch", time: "seconds" };

/** Return the axes on which at least one of the series can be drawn. */
export function axesOf(series: readonly Charted[]): Axis[] {
  const others = (["epoch", "time"] as const).filter((axis) => series.some((one) => isOn(one, axis)));
  return ["reported", ...others];
}

/** Return the series with other x values, or unchanged if some of its values have no place on that axis. */
export function onAxis(series: Charted, axis: Axis): Charted {
  if (axis === "reported" || !isOn(series, axis)) return series;
  const label = LABELS[axis];
  if (!("lines" in series)) return { ...moved(series, axis), x_label: label };
  const lines = series.lines.map((line) => moved(line, axis));
  const all = { x: union(lines.map((line) => line.x)), bad_x: lines.flatMap((line) => line.bad_x) };
  return { ...series, ...all, lines, x_label: label };
}

function isOn(series: Charted, axis: "epoch" | "time"): boolean {
  const parts: Points[] = "lines" in series ? series.lines : [series];
  return parts.every((part) => part[axis].length > 0);
}

function moved<T extends Points & Pick<Series, "bad_x"> & Partial<Pick<Series, "ranks">>>(line: T, axis: Axis): T {
  const on = axis === "time" ? line.time : epochs(line);
  const places = new Map(line.x.map((x, n) => [x, on[n] ?? null]));
  const place = (xs: Numbers): Numbers => xs.map((x) => places.get(x) ?? null);
  const ranks = Object.entries(line.ranks ?? {}).map(([rank, own]) => [rank, { ...own, x: place(own.x) }] as const);
  return { ...line, x: on, bad_x: place(line.bad_x), ...(line.ranks && { ranks: Object.fromEntries(ranks) }) };
}

/**
 * Return the x value at which the last epoch in a point begins.
 *
 * A point of a long run is the mean over several epochs. It has the x value of its middle and the last of its epochs,
 * which begins later: of four epochs, at about seven eighths of the point's width.
 */
function startOfEpoch({ x, epoch }: Pick<Points, "x" | "epoch">, n: number): number {
  // The epochs before the first point are unknown. Usually, all points have about the same number of epochs.
  const at = Math.max(1, n);
  const count = (epoch[at] ?? 0) - (epoch[at - 1] ?? 0);
  const later = count > 1 ? (widthOf(x) - 1) * (0.5 - 0.5 / count) : 0;
  return Number(x[n]) + later;
}

/** Return how many steps a point covers: a power of two, because x + 0.5 is an odd multiple of its half. */
function widthOf(x: Numbers): number {
  const twice = 2 * (x[0] ?? 0) + 1;
  return Number.isInteger(twice) && Math.abs(twice) < 2 ** 31 ? twice & -twice : 1;
}

/** Return the positions of points in epochs. The middle of epoch 1 is 1.5, and the end of the last one is a whole. */
function epochs({ x, epoch }: Points): Numbers {
  const first = epoch.map((own, n) => own !== null && own !== (epoch[n - 1] ?? null));
  const starts = x.map((_, n) => startOfEpoch({ x, epoch }, n)).filter((_, n) => first[n]);
  const numbers = epoch.filter((_, n) => first[n]).map(Number);
  const end = Math.max(Number(x.at(-1)), 2 * (starts.at(-1) ?? 0) - (starts.at(-2) ?? starts.at(-1) ?? 0));
  const position = scaleLinear([...starts, end], [...numbers, (numbers.at(-1) ?? 0) + 1]);
  return x.map((at, n) => (at === null || epoch[n] === null ? null : position(at)));
}
