/** The chart of one series. It shows the mean and range over the ranks, one line per rank, or one per compared run. */

import { useMemo, useRef, useState, type JSX, type KeyboardEvent, type PointerEvent } from "react";

import { useSize } from "../hooks";
import { number } from "../format";
import { useTranslator } from "../i18n";
import type { Series } from "../wire";
import { BOTTOM, HEIGHT, MARGIN, Plot, type Comparison } from "./plot";

/** The legend and the tooltip list at most this many lines of a chart. */
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
  const plot = useMemo(() => new Plot(series, log, width, trans), [series, log, width, trans]);
  // The element is memoized, so that moving the pointer does not render all lines again.
  const drawing = useMemo(() => <Drawing plot={plot} />, [plot]);
  const { name, last, x, bad } = series;
  const notFinite = bad ? ` · ${trans.__("%1 not finite", bad)}` : "";
  const content = plot.runs
    ? trans._n("%1 line", "%1 lines", plot.runs.length)
    : trans.__("last value %1", number(last));
  const onPointerMove = (event: PointerEvent) =>
    setHovered(plot.indexAt(event.clientX - event.currentTarget.getBoundingClientRect().left));
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    setHovered(Math.min(x.length - 1, Math.max(0, (hovered ?? x.length - 1) + step)));
  };
  const at = x[hovered ?? -1] ?? null;
  return (
    <div className="fd-chart">
      <div className="fd-chart-head">
        <strong title={name}>{name}</strong>
        <span className="fd-muted">{(plot.runs ? "" : number(last)) + notFinite}</span>
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
        {at !== null && <Guide plot={plot} at={at} />}
      </svg>
      <Legend plot={plot} />
      {at !== null && <Tip plot={plot} at={at} />}
    </div>
  );
}

function Drawing({ plot }: { plot: Plot }): JSX.Element {
  const trans = useTranslator();
  const [left, right] = [MARGIN.left, plot.width - MARGIN.right];
  return (
    <>
      {plot.yTicks.map((tick) => (
        <g key={tick} transform={`translate(0 ${plot.top(tick)})`}>
          <line className="fd-grid" x1={left} x2={right} />
          <Text x={left - 7} y={4} anchor="end" text={number(tick)} />
        </g>
      ))}
      {plot.xTicks.map((tick) => (
        <Text key={tick} x={plot.left(tick)} y={BOTTOM + 15} text={number(tick)} />
      ))}
      <Text
        x={(left + right) / 2}
        y={HEIGHT - 4}
        text={plot.y ? plot.series.x_label : trans.__("nothing to draw on this scale yet")}
      />
      {plot.spread && <path className="fd-band" d={plot.band()} />}
      {plot.lines.map((line) => (
        <path key={line.label} className="fd-mean" d={plot.path(line)} style={{ stroke: line.colour }} />
      ))}
      {plot.lines.flatMap((line) =>
        plot.lonePoints(line).map((at) => <Dot key={`${line.label} ${at[0]}`} at={at} colour={line.colour} r={2.5} />),
      )}
      {plot.series.bad_x.map((bad, n) => (
        <path key={n} className="fd-bad-mark" d={`M${plot.left(bad) - 4},${BOTTOM} h8 l-4,-7 z`}>
          <title>{trans.__("NaN or infinite")}</title>
        </path>
      ))}
    </>
  );
}

function Text(props: { x: number; y: number; anchor?: "middle" | "end"; text: string }): JSX.Element {
  return (
    <text x={props.x} y={props.y} textAnchor={props.anchor ?? "middle"}>
      {props.text}
    </text>
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
      <Unnamed count={lines.length - NAMED} />
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

function Unnamed({ count }: { count: number }): JSX.Element | null {
  const trans = useTranslator();
  return count > 0 ? <div className="fd-muted">{trans._n("… %1 more", "… %1 more", count)}</div> : null;
}

/** A chart, and the x value (`at`) that the user has selected with the pointer or the arrow keys. */
interface ReadingProps {
  plot: Plot;
  at: number;
}

/** A vertical line at the selected x value, with a dot on each line that the legend lists. */
function Guide({ plot, at }: ReadingProps): JSX.Element {
  const left = plot.left(at);
  return (
    <g pointerEvents="none">
      <line className="fd-guide" x1={left} x2={left} y1={MARGIN.top} y2={BOTTOM} />
      {plot
        .readings(plot.lines.slice(0, NAMED), at)
        .map(({ label, point, colour }) => point && <Dot key={label} at={point} colour={colour} />)}
    </g>
  );
}

/** The tooltip with the values of all lines at the selected x value. */
function Tip({ plot, at }: ReadingProps): JSX.Element {
  const trans = useTranslator();
  const { series, width, lines } = plot;
  const index = series.x.indexOf(at);
  const [low = null, high = null] = [series.low[index], series.high[index]];
  const left = plot.left(at);
  return (
    <div className="fd-tip" style={left > width / 2 ? { right: width - left + 12 } : { left: left + 12 }}>
      <div className="fd-muted">
        {series.x_label} {number(Math.round(at))}
      </div>
      {plot.readings(lines.slice(0, NAMED), at).map((line) => (
        <div key={line.label}>
          <Key {...line} /> {line.value === null ? trans.__("NaN or infinite") : number(line.value)}
        </div>
      ))}
      <Unnamed count={lines.length - NAMED} />
      {plot.spread && low !== null && low !== high && (
        <div className="fd-muted">{trans.__("%1 to %2", number(low), number(high))}</div>
      )}
    </div>
  );
}
