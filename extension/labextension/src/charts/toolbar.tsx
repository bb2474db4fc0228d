/** The settings of a group of charts: what the x axis shows, and the smoothing of the lines. */

import { useState, type JSX } from "react";

import { useTranslator } from "../i18n";
import type { Axis } from "./axis";
import { MOST_SMOOTHING, smoothingOf } from "./smoothing";

interface Props {
  axes: readonly Axis[];
  /** The name of the axis that the runs have reported, e.g. step. */
  reported: string;
  axis: Axis;
  setAxis: (axis: Axis) => void;
  smoothing: number;
  setSmoothing: (smoothing: number) => void;
  unfolded: boolean;
}

export function Toolbar({ axes, reported, axis, setAxis, smoothing, setSmoothing, unfolded }: Props): JSX.Element {
  const trans = useTranslator();
  const names = { reported, epoch: trans.__("epoch"), time: trans.__("time") };
  return (
    <details className="fd-chart-tools" open={unfolded}>
      <summary>{trans.__("Axis and smoothing")}</summary>
      <div className="fd-row">
        <label>
          {trans.__("x axis")}{" "}
          <select value={axis} onChange={(event) => setAxis(event.target.value as Axis)}>
            {axes.map((one) => (
              <option key={one} value={one}>
                {names[one]}
              </option>
            ))}
          </select>
        </label>
        <Smoothing value={smoothing} setValue={setSmoothing} />
      </div>
    </details>
  );
}

function Smoothing({ value, setValue }: { value: number; setValue: (value: number) => void }): JSX.Element {
  const trans = useTranslator();
  const [text, setText] = useState(String(value));
  const change = (next: string) => {
    setText(next);
    setValue(smoothingOf(next));
  };
  const limits = { min: 0, max: MOST_SMOOTHING, step: 0.01 };
  return (
    <>
      <label>
        {trans.__("Smoothing")}{" "}
        <input type="range" {...limits} value={value} onChange={(event) => change(event.target.value)} />
      </label>
      <input
        type="number"
        {...limits}
        value={text}
        aria-label={trans.__("Smoothing as a number")}
        onChange={(event) => change(event.target.value)}
      />
      <span role="status" className="fd-muted">
        {Number(text) !== value && trans.__("The smoothing is 0 to %1; %2 is used.", MOST_SMOOTHING, value)}
      </span>
    </>
  );
}
