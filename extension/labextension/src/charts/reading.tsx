/** The legend of a chart, and the values at the x value that the user reads. */

import type { JSX } from "react";

import { number } from "../format";
import { useTranslator } from "../i18n";
import { useReadAt, type Cursor } from "./cursor";
import { Dot } from "./drawing";
import { BOTTOM, MARGIN, type Plot } from "./plot";

/** The legend, the tooltip and a picture list at most this many lines of a chart. */
export const NAMED = 12;

export function Legend({ plot: { lines, spread, series } }: { plot: Plot }): JSX.Element {
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

interface Props {
  plot: Plot;
  cursor: Cursor;
}

/** A vertical line at the x value that the user reads, with a dot on each line that the legend lists. */
export function Guide({ plot, cursor }: Props): JSX.Element | null {
  const at = useReadAt(cursor, plot.series.x_label);
  if (!plot.isVisible(at)) return null;
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

/** The tooltip with the values of all lines at the x value that the user reads. */
export function Tip({ plot, cursor }: Props): JSX.Element | null {
  const trans = useTranslator();
  const { series, width, lines, format } = plot;
  const at = useReadAt(cursor, series.x_label);
  if (!plot.isVisible(at)) return null;
  const [low, high] = plot.spreadAt(at);
  const left = plot.left(at);
  const whole = ["epoch", "seconds"].includes(series.x_label) ? at : Math.round(at);
  return (
    <div className="fd-tip" style={left > width / 2 ? { right: width - left + 12 } : { left: left + 12 }}>
      <div className="fd-muted">
        {series.x_label} {number(whole)}
      </div>
      {plot.readings(lines.slice(0, NAMED), at).map((line) => (
        <div key={line.label}>
          <Key {...line} /> {line.value === null ? trans.__("NaN or infinite") : format(line.value)}
          {line.raw !== line.value && <span className="fd-muted"> ({format(line.raw)})</span>}
        </div>
      ))}
      <Unnamed count={lines.length - NAMED} />
      {plot.spread && low !== null && low !== high && (
        <div className="fd-muted">{trans.__("%1 to %2", format(low), format(high))}</div>
      )}
    </div>
  );
}
