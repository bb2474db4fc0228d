/** The charts of all series of one run, or of several compared runs. */

import { useState, type JSX } from "react";

import type { Series } from "../wire";
import { Chart } from "./chart";
import type { Comparison } from "./plot";

export function Charts({ series }: { series: readonly (Series | Comparison)[] }): JSX.Element {
  // The names of the series that are drawn on a logarithmic scale.
  const [names, setNames] = useState<readonly string[]>([]);
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
