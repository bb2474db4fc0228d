/** The charts of all series of one run, or of several compared runs. They share the x value that the user reads. */

import { useMemo, useState, type JSX } from "react";

import { axesOf, onAxis, type Axis } from "./axis";
import { Chart } from "./chart";
import { Cursor } from "./cursor";
import type { Charted, Range } from "./plot";
import { Toolbar } from "./toolbar";

interface Props {
  series: readonly Charted[];
  /** Whether the settings are shown at first. The output of a cell and the side bar have no space for them. */
  unfolded?: boolean;
}

export function Charts({ series, unfolded = false }: Props): JSX.Element {
  const [cursor] = useState(() => new Cursor());
  const [chosen, setAxis] = useState<Axis>("reported");
  const [smoothing, setSmoothing] = useState(0);
  const [range, setRange] = useState<Range | null>(null);
  const axes = useMemo(() => axesOf(series), [series]);
  const axis = axes.includes(chosen) ? chosen : "reported";
  const moved = useMemo(() => series.map((one) => onAxis(one, axis)), [series, axis]);
  const reported = [...new Set(series.map((one) => one.x_label))].join(" / ");
  return (
    <>
      {series.length > 0 && <Toolbar {...{ axes, reported, axis, setAxis, smoothing, setSmoothing, unfolded }} />}
      <div className="fd-charts">
        {moved.map((one) => (
          <Chart
            key={one.name}
            series={one}
            smoothing={smoothing}
            cursor={cursor}
            range={range?.label === one.x_label ? range : null}
            setRange={setRange}
          />
        ))}
      </div>
    </>
  );
}
