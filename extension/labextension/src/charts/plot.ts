/** Computes the lines, scales and ticks of a chart. */

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
  /** The index of the run among all compared runs. It selects the run's colour, which is the same in all charts. */
  place: number;
}

/** A series with one line for each compared run. */
export type Comparison = Series & { lines: RunLine[] };

export interface PlotLine extends RankLine {
  label: string;
  colour: string;
}

/** The value of a line at one x value. `point` is its position in the chart, or null if the scale cannot show it. */
export interface Reading extends PlotLine {
  value: number | null;
  point: [number, number] | null;
}

type Scale = ScaleContinuousNumeric<number, number>;
type Value = number | null | undefined;

export class Plot {
  constructor(
    readonly series: Series | Comparison,
    private readonly log: boolean,
    readonly width: number,
    trans: Translator,
  ) {
    this.runs = "lines" in series ? series.lines : null;
    this.spread = !this.runs && !series.ranks;
    this.lines = this.linesOf(trans);
    const values = [...this.lines.flatMap((one) => one.mean), ...(this.spread ? [...series.low, ...series.high] : [])];
    const domain = domainOf(values.filter(this.shows), 0.05, log);
    this.x = scaleLinear(domainOf(series.x, 0, false) ?? [0, 1], [MARGIN.left, width - MARGIN.right]);
    this.y = domain && (log ? scaleLog : scaleLinear)(domain, [BOTTOM, MARGIN.top]);
  }

  get xTicks(): number[] {
    return this.x.ticks(Math.max(2, Math.min(6, this.width / 80))).filter(Number.isInteger);
  }

  /** The ticks that have a label. A logarithmic scale has too many ticks to label them all. */
  get yTicks(): number[] {
    const label = this.y?.tickFormat(4);
    return this.y?.ticks(4).filter((tick) => label?.(tick)) ?? [];
  }

  /** Return the SVG path of a line, with a gap at each value that the scale cannot show. */
  path({ x, mean }: RankLine): string {
    const path = line<Value>((_, n) => this.left(x[n]), this.top);
    return path.defined(this.shows).digits(1)(mean) ?? "";
  }

  /** Return the SVG path of the area between the lowest and the highest value of all ranks. */
  band(): string {
    const { x, low, high } = this.series;
    const path = area<Value>(
      (_, n) => this.left(x[n]),
      this.top,
      (_, n) => this.top(high[n]),
    );
    return path.defined(this.shows).digits(1)(low) ?? "";
  }

  /** Return the points of a line that have gaps on both sides. A path does not show them, so they are drawn as dots. */
  lonePoints({ x, mean }: RankLine): [number, number][] {
    const lone = (n: number) => this.shows(mean[n]) && !this.shows(mean[n - 1]) && !this.shows(mean[n + 1]);
    return mean.flatMap((value, n): [number, number][] => (lone(n) ? [[this.left(x[n]), this.top(value)]] : []));
  }

  /** Return the index of the x value that is nearest to a horizontal position in the chart, in pixels. */
  indexAt(left: number): number {
    return nearest(this.series.x, this.x.invert(left));
  }

  /** Return the value of each line at the x value `step`. Lines without a value there are omitted. */
  readings(lines: readonly PlotLine[], step: number): Reading[] {
    return lines.flatMap((one) => {
      const n = this.runs ? nearestInside(one.x, step) : one.x.indexOf(step);
      const value = one.mean[n];
      if (value === undefined) return [];
      return { ...one, value, point: this.shows(value) ? [this.left(one.x[n]), this.top(value)] : null };
    });
  }

  readonly left = (value: Value): number => this.x(value ?? NaN);
  readonly top = (value: Value): number => this.y?.(value ?? NaN) ?? NaN;
  /** Return whether the scale can show a value. A logarithmic scale cannot show zero and negative values. */
  private readonly shows = (value: Value): value is number => typeof value === "number" && (!this.log || value > 0);

  private linesOf(trans: Translator): PlotLine[] {
    const { x, mean, ranks } = this.series;
    const colour = (place: number) => COLOURS[place % COLOURS.length] ?? "";
    if (this.runs) return this.runs.map((run) => ({ ...run, colour: colour(run.place) }));
    if (!ranks) return [{ label: trans.__("mean"), x, mean, colour: "var(--fd-accent)" }];
    return Object.entries(ranks).map(([rank, own], place) => {
      return { ...own, label: trans.__("rank %1", rank), colour: colour(place) };
    });
  }

  readonly lines: PlotLine[];
  /** The lines of the compared runs, or null in the chart of a single run. */
  readonly runs: RunLine[] | null;
  /** Whether the chart shows the mean and the range over the ranks instead of one line per rank or run. */
  readonly spread: boolean;
  /** Null if the scale can show none of the values. */
  readonly y: Scale | null;
  private readonly x: Scale;
}

/** Return the limits of an axis, with some space around the values, or null without values. They are never equal. */
function domainOf(values: Numbers, share: number, log: boolean): [number, number] | null {
  const [low, high] = extent(values.filter((value) => value !== null));
  if (low === undefined) return null;
  if (log) return low === high ? [low / 2, high * 2] : [low / (high / low) ** share, high * (high / low) ** share];
  const room = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * share;
  return [low - room, high + room];
}

function nearest(values: Numbers, x: number): number {
  return leastIndex(values, (value) => Math.abs((value ?? NaN) - x)) ?? -1;
}

/** Return the index of the value nearest to `x`, or -1 if `x` is outside the range in which this run has reported. */
function nearestInside(values: Numbers, x: number): number {
  const [first, last] = extent(values.filter((value) => value !== null));
  return first !== undefined && x >= first && x <= last ? nearest(values, x) : -1;
}
