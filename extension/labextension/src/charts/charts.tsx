/** The charts of all series of one run, or of several compared runs. */

import { useState, type JSX } from "react";

import type { Series } from "../wire";
import { Chart } from "./chart";
import type { Comparison } from "./plot";

/** The names of the series that are drawn on a logarithmic scale, and a function that replaces these names. */
export type LogScales = readonly [readonly string[], (names: string[]) => void];

interface Props {
  series: readonly (Series | Comparison)[];
  /** The caller's logarithmic scales. By default, the component keeps its own, which are lost when it is unmounted. */
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
