/** The chart of one series. It shows the mean and range over the ranks, one line per rank, or one per compared run. */

import { memo, useMemo, useRef, useState, type JSX } from "react";

import { useSize } from "../hooks";
import { useTranslator } from "../i18n";
import type { Cursor } from "./cursor";
import { Drawing } from "./drawing";
import { useInteraction } from "./interaction";
import { DownloadMenu } from "./menu";
import { BOTTOM, HEIGHT, MARGIN, Plot, type Charted, type Range } from "./plot";
import { Guide, Legend, Tip } from "./reading";

const INITIAL_WIDTH = 320;

interface ChartProps {
  series: Charted;
  smoothing: number;
  cursor: Cursor;
  range: Range | null;
  setRange: (range: Range | null) => void;
}

export const Chart = memo(function Chart({ series, smoothing, cursor, range, setRange }: ChartProps): JSX.Element {
  const trans = useTranslator();
  const svg = useRef<SVGSVGElement>(null);
  const width = useSize(svg, "clientWidth", INITIAL_WIDTH);
  const [log, setLog] = useState(false);
  const [problem, setProblem] = useState("");
  const options = useMemo(() => ({ log, smoothing, range }), [log, smoothing, range]);
  const plot = useMemo(() => new Plot(series, options, width, trans), [series, options, width, trans]);
  // The element is memoized, so that selecting a range does not render all lines again.
  const drawing = useMemo(() => <Drawing plot={plot} />, [plot]);
  const { drag, handlers } = useInteraction(plot, cursor, setRange);
  const { name, last, x, bad } = series;
  const notFinite = bad ? ` · ${trans.__("%1 not finite", bad)}` : "";
  const content = plot.runs
    ? trans._n("%1 line", "%1 lines", plot.runs.length)
    : trans.__("last value %1", plot.format(last));
  return (
    <div className="fd-chart">
      <div className="fd-chart-head">
        <strong title={name}>{name}</strong>
        <span className="fd-muted">{(plot.runs ? "" : plot.format(last)) + notFinite}</span>
        {range && (
          <button
            type="button"
            className="fd-small"
            aria-label={trans.__("Show the whole axis of %1", name)}
            onClick={() => setRange(null)}
          >
            {trans.__("reset zoom")}
          </button>
        )}
        <button
          type="button"
          className="fd-small"
          title={trans.__("Logarithmic scale")}
          aria-label={trans.__("Logarithmic scale for %1", name)}
          aria-pressed={log}
          onClick={() => setLog(!log)}
        >
          {trans.__("log")}
        </button>
        <DownloadMenu svg={svg} plot={plot} setProblem={setProblem} />
      </div>
      {problem && (
        <div className="fd-note" data-kind="error" role="alert">
          {problem}
        </div>
      )}
      {/* JupyterLab has shortcuts such as 0, 0, which restarts the kernel, for the keys that zoom here. */}
      <svg
        ref={svg}
        viewBox={`0 0 ${width} ${HEIGHT}`}
        role="img"
        tabIndex={0}
        data-lm-suppress-shortcuts="true"
        aria-label={`${name}: ${content}, ${trans._n("%1 point", "%1 points", x.length)}${notFinite}`}
        aria-description={trans.__("The arrow keys read the values; + and - zoom, and 0 shows the whole axis.")}
        {...handlers}
      >
        {drawing}
        {drag && <Selection from={Math.min(...drag)} to={Math.max(...drag)} />}
        <Guide plot={plot} cursor={cursor} />
      </svg>
      <Legend plot={plot} />
      <Tip plot={plot} cursor={cursor} />
    </div>
  );
});

/** The range that the user is selecting with the pointer. */
function Selection({ from, to }: { from: number; to: number }): JSX.Element {
  return <rect className="fd-selection" x={from} y={MARGIN.top} width={to - from} height={BOTTOM - MARGIN.top} />;
}
