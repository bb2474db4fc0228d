/** Combines the series of several runs, so that one chart shows all runs. */

import { ascending, sum } from "d3-array";

import { title } from "../format";
import type { Numbers, RunView } from "../wire";
import type { Comparison } from "./plot";

/** Return the x values that occur in any of the lines, in ascending order. */
export function union(lines: readonly Numbers[]): number[] {
  const places = new Set(lines.flat().filter((x) => x !== null));
  return [...places].sort(ascending);
}

export const MOST_COMPARED = 8;

/** Return a label for each run, which is the run's name. If several runs have the same name, the id is added. */
export function labels(views: readonly Pick<RunView, "id" | "name">[]): string[] {
  const names = views.map(title);
  return views.map((view, n) => {
    const name = names[n] ?? view.id;
    return names.filter((other) => other === name).length > 1 && name !== view.id ? `${name} (${view.id})` : name;
  });
}

/** Return one series for each series name in the runs. Each has one line per run: the mean over its ranks. */
export function compare(views: readonly RunView[]): Comparison[] {
  const names = new Set(views.flatMap((view) => view.series.map((series) => series.name)));
  return [...names].map((name) => comparison(name, views));
}

function comparison(name: string, views: readonly RunView[]): Comparison {
  const runs = labels(views);
  const found = views.flatMap((view, place) => {
    const series = view.series.find((one) => one.name === name);
    return series ? [{ series, place, label: runs[place] ?? view.id }] : [];
  });
  const series = found.map((one) => one.series);
  return {
    name,
    x_label: [...new Set(series.map((one) => one.x_label))].join(" / "),
    bad: sum(series, (one) => one.bad),
    bad_x: series.flatMap((one) => one.bad_x),
    last: null,
    lowest: null,
    highest: null,
    x: union(series.map((one) => one.x)),
    mean: [],
    low: [],
    high: [],
    time: [],
    epoch: [],
    ranks: null,
    lines: found.map(({ series: { x, mean, time, epoch, bad_x }, label, place }) => {
      return { label, place, x, mean, time, epoch, bad_x };
    }),
  };
}
