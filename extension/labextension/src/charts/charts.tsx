/** The charts of all series of a run, or of several runs. */

import { useState, type JSX } from "react";

import type { Series } from "../wire";
import { Chart } from "./chart";
import type { Comparison } from "./plot";

/** The names of the series on a logarithmic scale, and a function that changes them. */
export type LogScales = readonly [readonly string[], (names: string[]) => void];

interface Props {
  series: readonly (Series | Comparison)[];
  /** Kept by the caller; without it, the scales last as long as the component. */
  logScales?: LogScales;
}

export function Charts({ series, logScales }: Props): JSX.Element {
  const own = useState<readonly string[]>([]);
  const [names, setNames] = logScales ?? own;
  const toggle = (name: string) =>
    setNames(names.includes(name) ? names.filter((other) => other !== name) : [...names, name]);
  return (
    <div className="fd-charts">
      {series.map((one) => (
        <Chart key={one.name} series={one} log={names.includes(one.name)} toggleLog={() => toggle(one.name)} />
      ))}
    </div>
  );
}
