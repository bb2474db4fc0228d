/** Computes the lines, scales and ticks of a chart. */

import { extent, leastIndex } from "d3-array";
import { scaleLinear, scaleLog, type ScaleContinuousNumeric } from "d3-scale";
import { area, line } from "d3-shape";

import { number } from "../format";
import type { Translator } from "../i18n";
import type { Numbers, RankLine, Series } from "../wire";
import { smoothed } from "./smoothing";

export const HEIGHT = 190;
export const MARGIN = { top: 8, right: 10, bottom: 34, left: 50 };
export const BOTTOM = HEIGHT - MARGIN.bottom;
const COLOURS = ["#3b82c4", "#e8833a", "#3fa66b", "#d65f8c", "#8b6fd0", "#b58a2a", "#2ba6a6", "#8a8f98"];

/** The line of one run in a chart that compares runs. */
export interface RunLine extends RankLine, Pick<Series, "time" | "epoch" | "bad_x"> {
  label: string;
  /** The index of the run among all compared runs. It selects the run's colour, which is the same in all charts. */
  place: number;
}

/** A series with one line for each compared run. */
export type Comparison = Series & { lines: RunLine[] };

/** What a chart shows. `format` writes the values as text. */
export type Charted = (Series | Comparison) & { format?: (value: number | null) => string };

/** The visible part of an x axis. `label` names the axis, because the charts of a group may have different ones. */
export interface Range {
  label: string;
  low: number;
  high: number;
}

/** How a chart is drawn. The smoothing is from 0 to 0.99, and without a range the whole axis is visible. */
export interface Options {
  log: boolean;
  smoothing: number;
  range: Range | null;
}

/** A line of a chart. `shown` contains the smoothed values, or those of `mean` without smoothing. */
export interface PlotLine extends RankLine {
  label: string;
  colour: string;
  shown: Numbers;
}

/** The value of a line at one x value. `point` is its position in the chart, or null if the scale cannot show it. */
export interface Reading extends PlotLine {
  value: number | null;
  /** The value without smoothing. */
  raw: number | null;
  point: [number, number] | null;
}

type Scale = ScaleContinuousNumeric<number, number>;
type Value = number | null | undefined;

export class Plot {
  constructor(
    readonly series: Charted,
    private readonly options: Options,
    readonly width: number,
    trans: Translator,
  ) {
    const { log, range } = options;
    this.format = series.format ?? number;
    this.runs = "lines" in series ? series.lines : null;
    this.spread = !this.runs && !series.ranks;
    this.lines = this.linesOf(trans);
    this.whole = domainOf(series.x, 0, false) ?? [0, 1];
    this.x = scaleLinear(range ? [range.low, range.high] : this.whole, [MARGIN.left, width - MARGIN.right]);
    const values = this.lines.flatMap((one) => [...this.visible(one.x, one.mean), ...this.visible(one.x, one.shown)]);
    const spread = this.spread ? [series.low, series.high].flatMap((bound) => this.visible(series.x, bound)) : [];
    const domain = domainOf([...values, ...spread].filter(this.shows), 0.05, log);
    this.y = domain && (log ? scaleLog : scaleLinear)(domain, [BOTTOM, MARGIN.top]);
  }

  get xTicks(): number[] {
    const ticks = this.x.ticks(Math.max(2, Math.min(6, this.width / 80)));
    const whole = ticks.filter(Number.isInteger);
    return whole.length ? whole : ticks;
  }

  /** The ticks that have a label. A logarithmic scale has too many ticks to label them all. */
  get yTicks(): number[] {
    const label = this.y?.tickFormat(4);
    return this.y?.ticks(4).filter((tick) => label?.(tick)) ?? [];
  }

  /** Return the SVG path of the values of a line, with a gap at each value that the scale cannot show. */
  path(x: Numbers, values: Numbers): string {
    const path = line<Value>((_, n) => this.left(x[n]), this.top);
    return path.defined((value, n) => this.shows(value) && isNumber(x[n])).digits(1)(values) ?? "";
  }

  /** Return the SVG path of the area between the lowest and the highest value of all ranks. */
  band(): string {
    const { x, low, high } = this.series;
    const path = area<Value>(
      (_, n) => this.left(x[n]),
      this.top,
      (_, n) => this.top(high[n]),
    );
    return path.defined((value, n) => this.shows(value) && isNumber(x[n])).digits(1)(low) ?? "";
  }

  /** Return the points of a line that have gaps on both sides. A path does not show them, so they are drawn as dots. */
  lonePoints({ x, shown }: PlotLine): [number, number][] {
    const lone = (n: number) => this.shows(shown[n]) && !this.shows(shown[n - 1]) && !this.shows(shown[n + 1]);
    return shown.flatMap((value, n): [number, number][] =>
      lone(n) && this.isVisible(x[n]) ? [[this.left(x[n]), this.top(value)]] : [],
    );
  }

  /** Return whether an x value is in the visible part of the axis. */
  isVisible(x: Value): x is number {
    const [low = 0, high = 0] = this.x.domain();
    return isNumber(x) && x >= low && x <= high;
  }

  /** Return the visible ones of the values of a line. */
  visible(x: Numbers, values: Numbers): Numbers {
    return values.filter((_, n) => this.isVisible(x[n]));
  }

  /** Return the part of the axis between two positions in the chart, or null if it has fewer than two points. */
  between(one: number, other: number): Range | null {
    return this.range(this.x.invert(Math.min(one, other)), this.x.invert(Math.max(one, other)));
  }

  /** Return the part of the axis that is `factor` times as long as the visible part, or null as `between` does. */
  zoomed(factor: number, around: number | null): Range | null {
    const [low = 0, high = 0] = this.x.domain();
    const centre = this.isVisible(around) ? around : (low + high) / 2;
    return this.range(centre - (centre - low) * factor, centre + (high - centre) * factor);
  }

  private range(from: number, to: number): Range | null {
    const [low, high] = [Math.max(from, this.whole[0]), Math.min(to, this.whole[1])];
    const inside = this.series.x.filter((x) => isNumber(x) && x >= low && x <= high);
    return inside.length > 1 ? { label: this.series.x_label, low, high } : null;
  }

  /** Return whether a range is the whole axis. */
  isWhole({ low, high }: Range): boolean {
    return low <= this.whole[0] && high >= this.whole[1];
  }

  /** Return the x value of the point that is nearest to a horizontal position in the chart, in pixels. */
  at(left: number): number | null {
    return this.series.x[nearest(this.series.x, this.x.invert(left))] ?? null;
  }

  /** Return the x value that is `steps` visible points from `from`. Without `from`, the points count from the end. */
  move(from: number | null, steps: number): number | null {
    const visible = this.series.x.filter((x) => this.isVisible(x));
    const index = from === null ? visible.length - 1 : nearest(visible, from);
    return visible[Math.min(visible.length - 1, Math.max(0, index + steps))] ?? null;
  }

  /** Return the value of each line at or next to the x value `at`. Lines that do not reach it are omitted. */
  readings(lines: readonly PlotLine[], at: number): Reading[] {
    return lines.flatMap((one) => {
      const n = nearestInside(one.x, at);
      const [value, raw = null] = [one.shown[n], one.mean[n]];
      if (value === undefined) return [];
      return { ...one, value, raw, point: this.shows(value) ? [this.left(one.x[n]), this.top(value)] : null };
    });
  }

  /** Return the lowest and the highest value over the ranks at or next to the x value `at`. */
  spreadAt(at: number): [number | null, number | null] {
    const index = nearestInside(this.series.x, at);
    return [this.series.low[index] ?? null, this.series.high[index] ?? null];
  }

  readonly left = (value: Value): number => this.x(value ?? NaN);
  readonly top = (value: Value): number => this.y?.(value ?? NaN) ?? NaN;
  /** Return whether the scale can show a value. A logarithmic scale cannot show zero and negative values. */
  private readonly shows = (value: Value): value is number => isNumber(value) && (!this.options.log || value > 0);

  private linesOf(trans: Translator): PlotLine[] {
    const { smoothing } = this.options;
    return this.rawLines(trans).map((one) => ({ ...one, shown: smoothing ? smoothed(one.mean, smoothing) : one.mean }));
  }

  private rawLines(trans: Translator): Omit<PlotLine, "shown">[] {
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
  readonly format: (value: number | null) => string;
  private readonly x: Scale;
  private readonly whole: [number, number];
}

/** Return the limits of an axis, with some space around the values, or null without values. They are never equal. */
function domainOf(values: Numbers, share: number, log: boolean): [number, number] | null {
  const [low, high] = extent(values.filter((value) => value !== null));
  if (low === undefined) return null;
  if (log) return low === high ? [low / 2, high * 2] : [low / (high / low) ** share, high * (high / low) ** share];
  const room = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * share;
  return [low - room, high + room];
}

function isNumber(value: Value): value is number {
  return typeof value === "number";
}

function nearest(values: Numbers, x: number): number {
  return leastIndex(values, (value) => Math.abs((value ?? NaN) - x)) ?? -1;
}

/** Return the index of the value nearest to `x`, or -1 if `x` is outside the range of the values. */
function nearestInside(values: Numbers, x: number): number {
  const [first, last] = extent(values.filter((value) => value !== null));
  return first !== undefined && x >= first && x <= last ? nearest(values, x) : -1;
}
