/** The chart of one series: mean and range over the ranks, one line per rank, or one line per compared run. */

import { useMemo, useRef, useState, type JSX, type KeyboardEvent, type PointerEvent } from "react";

import { useSize } from "../components/hooks";
import { number } from "../format";
import { useTranslator } from "../i18n";
import type { Series } from "../wire";
import {
  bandPath,
  BOTTOM,
  HEIGHT,
  indexAt,
  linePath,
  lonePoints,
  MARGIN,
  nearest,
  plotOf,
  type Comparison,
  type Plot,
  type PlotLine,
} from "./plot";

/** The number of lines that the legend and the tooltip name. */
const NAMED = 12;
const INITIAL_WIDTH = 320;

interface ChartProps {
  series: Series | Comparison;
  log: boolean;
  toggleLog: () => void;
}

export function Chart({ series, log, toggleLog }: ChartProps): JSX.Element {
  const trans = useTranslator();
  const svg = useRef<SVGSVGElement>(null);
  const width = useSize(svg, "clientWidth", INITIAL_WIDTH);
  const [hovered, setHovered] = useState<number | null>(null);
  const plot = useMemo(() => plotOf(series, log, width, trans), [series, log, width, trans]);
  // The same element: a hover then leaves the lines untouched.
  const drawing = useMemo(() => <Drawing plot={plot} />, [plot]);
  const { name, last, x, bad } = series;
  const notFinite = bad ? ` · ${trans.__("%1 not finite", bad)}` : "";
  const content =
    "lines" in series ? trans._n("%1 line", "%1 lines", series.lines.length) : trans.__("last value %1", number(last));
  const onPointerMove = (event: PointerEvent) => {
    const left = event.clientX - event.currentTarget.getBoundingClientRect().left;
    setHovered(nearest(x, plot.x.invert(left)));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    setHovered(Math.min(x.length - 1, Math.max(0, (hovered ?? x.length - 1) + step)));
  };
  const at = x[hovered ?? -1] ?? null;
  const reading = hovered === null || at === null ? null : { plot, at, index: hovered };
  return (
    <div className="fd-chart">
      <div className="fd-chart-head">
        <strong title={name}>{name}</strong>
        <span className="fd-muted">{("lines" in series ? "" : number(last)) + notFinite}</span>
        <button
          type="button"
          className="fd-small"
          title={trans.__("Logarithmic scale")}
          aria-label={trans.__("Logarithmic scale for %1", name)}
          aria-pressed={log}
          onClick={toggleLog}
        >
          {trans.__("log")}
        </button>
      </div>
      <svg
        ref={svg}
        viewBox={`0 0 ${width} ${HEIGHT}`}
        role="img"
        tabIndex={0}
        aria-label={`${name}: ${content}, ${trans._n("%1 point", "%1 points", x.length)}${notFinite}`}
        onPointerMove={onPointerMove}
        onPointerLeave={() => setHovered(null)}
        onBlur={() => setHovered(null)}
        onKeyDown={onKeyDown}
      >
        {drawing}
        {reading && <Guide {...reading} />}
      </svg>
      <Legend plot={plot} />
      {reading && <Tip {...reading} />}
    </div>
  );
}

function Drawing({ plot }: { plot: Plot }): JSX.Element {
  const trans = useTranslator();
  const { series, lines, x, y, width } = plot;
  const [left, right] = [MARGIN.left, width - MARGIN.right];
  return (
    <>
      {plot.yTicks.map((tick) => (
        <g key={tick} transform={`translate(0 ${y?.(tick) ?? 0})`}>
          <line className="fd-grid" x1={left} x2={right} />
          <text x={left - 7} y={4} textAnchor="end">
            {number(tick)}
          </text>
        </g>
      ))}
      {plot.xTicks.map((tick) => (
        <text key={tick} x={x(tick)} y={BOTTOM + 15} textAnchor="middle">
          {number(tick)}
        </text>
      ))}
      <text x={(left + right) / 2} y={HEIGHT - 4} textAnchor="middle">
        {y ? series.x_label : trans.__("nothing to draw on this scale yet")}
      </text>
      {plot.spread && <path className="fd-band" d={bandPath(plot)} />}
      {lines.map((line) => (
        <path key={line.label} className="fd-mean" d={linePath(plot, line)} style={{ stroke: line.colour }} />
      ))}
      {lines.flatMap((line) =>
        lonePoints(plot, line).map((point) => (
          <Dot key={`${line.label} ${point[0]}`} at={point} colour={line.colour} r={2.5} />
        )),
      )}
      {series.bad_x.map((bad, n) => (
        <path key={n} className="fd-bad-mark" d={`M${x(bad ?? NaN) - 4},${BOTTOM} h8 l-4,-7 z`}>
          <title>{trans.__("NaN or infinite")}</title>
        </path>
      ))}
    </>
  );
}

function Dot({ at: [cx, cy], colour, r = 3.5 }: { at: [number, number]; colour: string; r?: number }): JSX.Element {
  return <circle className="fd-dot" cx={cx} cy={cy} r={r} style={{ fill: colour }} />;
}

function Legend({ plot: { lines, spread, series } }: { plot: Plot }): JSX.Element {
  const trans = useTranslator();
  return (
    <div className="fd-legend">
      {lines.slice(0, NAMED).map((line) => (
        <Key key={line.label} {...line} />
      ))}
      <Unnamed lines={lines} />
      {spread && <Key label={trans.__("lowest to highest")} colour="var(--fd-accent)" band />}
      {series.bad > 0 && <Key label={trans.__("NaN or infinite")} colour="var(--fd-bad)" />}
    </div>
  );
}

function Key({ label, colour, band }: { label: string; colour: string; band?: boolean }): JSX.Element {
  return (
    <span className="fd-key">
      <i data-band={band ? "" : undefined} style={{ color: colour }} />
      {label}
    </span>
  );
}

/** The number of lines that are not named. */
function Unnamed({ lines }: { lines: PlotLine[] }): JSX.Element | null {
  const trans = useTranslator();
  const count = lines.length - NAMED;
  return count > 0 ? <div className="fd-muted">{trans._n("… %1 more", "… %1 more", count)}</div> : null;
}

interface ReadingProps {
  plot: Plot;
  /** The step that the pointer or the arrow keys selected, and its index in the series. */
  at: number;
  index: number;
}

/** The vertical line at the selected step, with a dot on each line of the chart. */
function Guide({ plot, at }: ReadingProps): JSX.Element {
  const { x, y } = plot;
  return (
    <g pointerEvents="none">
      <line className="fd-guide" x1={x(at)} x2={x(at)} y1={MARGIN.top} y2={BOTTOM} />
      {plot.lines.slice(0, NAMED).map((line) => {
        const index = indexAt(plot, line, at);
        const value = line.mean[index];
        if (!y || !plot.shows(value)) return null;
        return <Dot key={line.label} at={[x(line.x[index] ?? NaN), y(value)]} colour={line.colour} />;
      })}
    </g>
  );
}

/** The values at the selected step. */
function Tip({ plot, at, index }: ReadingProps): JSX.Element {
  const trans = useTranslator();
  const { series, width } = plot;
  const [low, high] = [series.low[index], series.high[index]];
  const left = plot.x(at);
  return (
    <div className="fd-tip" style={left > width / 2 ? { right: width - left + 12 } : { left: left + 12 }}>
      <div className="fd-muted">
        {series.x_label} {number(Math.round(at))}
      </div>
      {plot.lines.slice(0, NAMED).map((line) => {
        const value = line.mean[indexAt(plot, line, at)];
        if (value === undefined) return null;
        return (
          <div key={line.label}>
            <Key {...line} /> {value === null ? trans.__("NaN or infinite") : number(value)}
          </div>
        );
      })}
      <Unnamed lines={plot.lines} />
      {plot.spread && typeof low === "number" && low !== high && (
        <div className="fd-muted">{trans.__("%1 to %2", number(low), number(high ?? null))}</div>
      )}
    </div>
  );
}
