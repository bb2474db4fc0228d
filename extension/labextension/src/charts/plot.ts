/** The geometry of a chart: its lines, its scales and its ticks. */

import { extent, leastIndex } from "d3-array";
import { scaleLinear, scaleLog, type ScaleContinuousNumeric } from "d3-scale";
import { area, line } from "d3-shape";

import type { Translator } from "../i18n";
import type { Numbers, RankLine, Series } from "../wire";

export const HEIGHT = 190;
export const MARGIN = { top: 8, right: 10, bottom: 34, left: 50 };
export const BOTTOM = HEIGHT - MARGIN.bottom;
const COLOURS = ["#3b82c4", "#e8833a", "#3fa66b", "#d65f8c", "#8b6fd0", "#b58a2a", "#2ba6a6", "#8a8f98"];

/** The line of one run in a chart that compares runs. */
export interface RunLine extends RankLine {
  label: string;
  /** The place of the run among all compared runs. It selects the colour, so that a run has one colour in all charts. */
  place: number;
}

/** A series with a line for each of several runs. */
export type Comparison = Series & { lines: RunLine[] };

export interface PlotLine extends RankLine {
  label: string;
  colour: string;
}

type Scale = ScaleContinuousNumeric<number, number>;

export interface Plot {
  series: Series | Comparison;
  lines: PlotLine[];
  /** Whether the chart shows the mean and the range over the ranks, in place of one line per rank or run. */
  spread: boolean;
  x: Scale;
  /** Null if no value fits on the scale. */
  y: Scale | null;
  xTicks: number[];
  yTicks: number[];
  width: number;
  /** Whether the scale can show a value: a logarithmic one has no place for zero and negative values. */
  shows: (value: number | null | undefined) => value is number;
}

export function plotOf(series: Series | Comparison, log: boolean, width: number, trans: Translator): Plot {
  const spread = !("lines" in series) && !series.ranks;
  const lines = linesOf(series, trans);
  const shows = (value: number | null | undefined): value is number => typeof value === "number" && (!log || value > 0);
  const values = [...lines.flatMap((one) => one.mean), ...(spread ? [...series.low, ...series.high] : [])];
  const domain = domainOf(values.filter(shows), 0.05, log);
  const x = scaleLinear(domainOf(series.x, 0, false) ?? [0, 1], [MARGIN.left, width - MARGIN.right]);
  const y = domain && (log ? scaleLog : scaleLinear)(domain, [BOTTOM, MARGIN.top]);
  const xTicks = x.ticks(Math.max(2, Math.min(6, width / 80))).filter(Number.isInteger);
  return { series, lines, spread, x, y, xTicks, yTicks: ticksOf(y), width, shows };
}

/** Return the ticks with a label; a logarithmic scale has more ticks than it has room for labels. */
function ticksOf(y: Scale | null): number[] {
  const label = y?.tickFormat(4);
  return y?.ticks(4).filter((tick) => label?.(tick)) ?? [];
}

/** Return the lowest and the highest value, with some space around them; they are never equal. */
function domainOf(values: Numbers, share: number, log: boolean): [number, number] | null {
  const [low, high] = extent(values.filter((value) => value !== null));
  if (low === undefined) return null;
  if (log) return low === high ? [low / 2, high * 2] : [low / (high / low) ** share, high * (high / low) ** share];
  const room = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * share;
  return [low - room, high + room];
}

function linesOf(series: Series | Comparison, trans: Translator): PlotLine[] {
  const { x, mean, ranks } = series;
  const colour = (place: number) => COLOURS[place % COLOURS.length] ?? "";
  if ("lines" in series) return series.lines.map((run) => ({ ...run, colour: colour(run.place) }));
  if (!ranks) return [{ label: trans.__("mean"), x, mean, colour: "var(--fd-accent)" }];
  return Object.entries(ranks).map(([rank, own], place) => ({
    ...own,
    label: trans.__("rank %1", rank),
    colour: colour(place),
  }));
}

/** Return the SVG path of a line; it has a gap at each value that cannot be shown. */
export function linePath({ x, y, shows }: Plot, { x: at, mean }: RankLine): string {
  const path = line<number | null>(
    (_, n) => x(at[n] ?? NaN),
    (value) => y?.(value ?? NaN) ?? NaN,
  );
  return path.defined(shows).digits(1)(mean) ?? "";
}

/** Return the SVG path of the area between the lowest and the highest value over the ranks. */
export function bandPath({ x, y, shows, series }: Plot): string {
  const place = (value: number | null | undefined) => y?.(value ?? NaN) ?? NaN;
  const path = area<number | null>(
    (_, n) => x(series.x[n] ?? NaN),
    place,
    (_, n) => place(series.high[n]),
  );
  return path.defined(shows).digits(1)(series.low) ?? "";
}

/** Return the points of a line that have no neighbour: a path would not show them. */
export function lonePoints({ x, y, shows }: Plot, { x: at, mean }: RankLine): [number, number][] {
  return mean.flatMap((value, n): [number, number][] =>
    y && shows(value) && !shows(mean[n - 1]) && !shows(mean[n + 1]) ? [[x(at[n] ?? NaN), y(value)]] : [],
  );
}

/** Return the index of the value nearest to `x`. */
export function nearest(values: Numbers, x: number): number {
  return leastIndex(values, (value) => Math.abs((value ?? NaN) - x)) ?? -1;
}

/** Return the index of the value that a line has at `x`, or -1. Runs report at different steps: the nearest counts. */
export function indexAt({ series }: Plot, { x: at }: RankLine, x: number): number {
  if (!("lines" in series)) return at.indexOf(x);
  const [first, last] = extent(at.filter((value) => value !== null));
  return first !== undefined && x >= first && x <= last ? nearest(at, x) : -1;
}
