/** The dashboard's chart as a component. */

import { useEffect, useRef, useState, type JSX } from "react";

import { Chart } from "../chart";
import type { Compared } from "../compare";
import type { Series } from "../wire";
import { useAround } from "./around";

export function ChartView({ series }: { series: Series | Compared }): JSX.Element {
  const { trans } = useAround();
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<Chart | null>(null);
  const [log, setLog] = useState(false);
  const { name } = series;
  useEffect(() => {
    const made = new Chart(
      name,
      () => setLog((before) => !before),
      (text) => trans.__(text),
    );
    chart.current = made;
    box.current?.replaceChildren(made.root);
  }, [name, trans]);
  useEffect(() => chart.current?.update(series, log), [series, log]);
  useEffect(() => {
    const observer = new ResizeObserver(() => chart.current?.resize());
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return <div ref={box} />;
}

export function Charts({ series }: { series: readonly (Series | Compared)[] }): JSX.Element {
  return (
    <div className="fd-charts">
      {series.map((one) => (
        <ChartView key={one.name} series={one} />
      ))}
    </div>
  );
}
