/** Shows the notices, the progress and the charts of a run, in the panel and in the dashboard of the notebook. */

import { memo, type JSX } from "react";

import { Charts } from "../../charts/charts";
import { duration, number, percent } from "../../format";
import { useTranslator } from "../../i18n";
import type { Bar, RunView } from "../../wire";
import { Note, Progress } from "../parts";

interface Props {
  view: RunView;
  byRank: boolean;
  setByRank: (byRank: boolean) => void;
  /** Whether the settings of the charts are shown at first. */
  unfolded?: boolean;
}

/** The reports of a run. They are drawn again only if they have changed, because a page may show many runs. */
export const Reports = memo(function Reports({ view, byRank, setByRank, unfolded }: Props): JSX.Element {
  const trans = useTranslator();
  // The lines of ranks are also there if another component of the page has asked for them.
  const series = byRank ? view.series : view.series.map((one) => ({ ...one, ranks: null }));
  return (
    <>
      <div className="fd-notes">
        {view.error && <Note error>{view.error}</Note>}
        {view.notices.map((notice) => (
          <Note key={notice} info={!view.warnings.includes(notice)}>
            {notice}
          </Note>
        ))}
      </div>
      <div className="fd-bars">
        {view.progress.map((bar) => (
          <ProgressBar key={bar.name} bar={bar} />
        ))}
      </div>
      {view.series.length > 0 && (
        <>
          <div className="fd-tools">
            <h4>{trans.__("Reports")}</h4>
            <button type="button" className="fd-small" aria-pressed={byRank} onClick={() => setByRank(!byRank)}>
              {trans.__("one line per rank")}
            </button>
          </div>
          <Charts series={series} unfolded={unfolded} />
        </>
      )}
    </>
  );
});

function ProgressBar({ bar: { name, done, total, seconds_left: left } }: { bar: Bar }): JSX.Element {
  const trans = useTranslator();
  const steps = number(Math.floor(done ?? 0));
  const value = total && done !== null ? Math.min(100, (100 * done) / total) : null;
  const count = total ? trans.__("%1 of %2", steps, number(total)) : trans.__("%1 done", steps);
  const time = left !== null && (left < 0.5 ? trans.__("a moment left") : trans.__("%1 left", duration(left)));
  const text = [value !== null && percent(value), count, value === 100 ? trans.__("done") : time];
  return <Progress label={name || trans.__("progress")} text={text.filter(Boolean).join(" · ")} value={value} />;
}
