/** The axes, lines and marks of a chart, as SVG. */

import type { JSX } from "react";

import { number } from "../format";
import { useTranslator } from "../i18n";
import { BOTTOM, HEIGHT, MARGIN, type Plot } from "./plot";

export function Drawing({ plot }: { plot: Plot }): JSX.Element {
  const trans = useTranslator();
  const [left, right] = [MARGIN.left, plot.width - MARGIN.right];
  return (
    <>
      {plot.yTicks.map((tick) => (
        <g key={tick} transform={`translate(0 ${plot.top(tick)})`}>
          <line className="fd-grid" x1={left} x2={right} />
          <Text x={left - 7} y={4} anchor="end" text={plot.format(tick)} />
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
      <Lines plot={plot} />
      {plot.lines.flatMap((line) =>
        plot.lonePoints(line).map((at) => <Dot key={`${line.label} ${at[0]}`} at={at} colour={line.colour} r={2.5} />),
      )}
      {plot.series.bad_x
        .filter((bad) => plot.isVisible(bad))
        .map((bad, n) => (
          <path key={n} className="fd-bad-mark" d={`M${plot.left(bad) - 4},${BOTTOM} h8 l-4,-7 z`}>
            <title>{trans.__("NaN or infinite")}</title>
          </path>
        ))}
    </>
  );
}

/** The lines and the band. An SVG element of their own cuts off what is outside of the visible range. */
function Lines({ plot }: { plot: Plot }): JSX.Element {
  const { left } = MARGIN;
  const width = Math.max(0, plot.width - left - MARGIN.right);
  return (
    <svg x={left} y={0} width={width} height={BOTTOM} viewBox={`${left} 0 ${width} ${BOTTOM}`}>
      {plot.spread && <path className="fd-band" d={plot.band()} />}
      {plot.lines
        .filter(({ mean, shown }) => mean !== shown)
        .map(({ label, x, mean, colour }) => (
          <path key={label} className="fd-raw" d={plot.path(x, mean)} style={{ stroke: colour }} />
        ))}
      {plot.lines.map(({ label, x, shown, colour }) => (
        <path key={label} className="fd-mean" d={plot.path(x, shown)} style={{ stroke: colour }} />
      ))}
    </svg>
  );
}

function Text(props: { x: number; y: number; anchor?: "middle" | "end"; text: string }): JSX.Element {
  return (
    <text x={props.x} y={props.y} textAnchor={props.anchor ?? "middle"}>
      {props.text}
    </text>
  );
}

interface DotProps {
  at: [number, number];
  colour: string;
  r?: number;
}

export function Dot({ at: [cx, cy], colour, r = 3.5 }: DotProps): JSX.Element {
  return <circle className="fd-dot" cx={cx} cy={cy} r={r} style={{ fill: colour }} />;
}
