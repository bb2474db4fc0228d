/** The comparison of several runs, with one chart for each series. */

import { useMemo, type JSX, type ReactNode } from "react";

import { Charts } from "../../charts/charts";
import { compare } from "../../charts/comparison";
import { usePanelContext, usePanelState, useSubscription } from "../context";
import { Empty, Note } from "../parts";
import { BackButton } from "./run";

interface Props {
  ids: readonly string[];
  close: () => void;
  /** Whether the settings of the charts are shown at first. */
  unfolded?: boolean;
  /** What is shown below the charts. */
  children?: ReactNode;
}

export function Compare({ ids, close, unfolded, children }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const { views } = usePanelState();
  useSubscription({ runs: ids });
  const loading = ids.some((id) => !views[id]);
  const key = ids.join(" ");
  const series = useMemo(() => compare(key.split(" ").flatMap((id) => views[id]?.view ?? [])), [key, views]);
  const common = series.some(({ lines }) => lines.length > 1);
  return (
    <section className="fd-detail" aria-label={trans.__("Comparison of runs")}>
      <BackButton focus close={close} />
      {!loading && series.length > 0 && !common && (
        <Note info>{trans.__("These runs have no series in common. Each chart shows one run.")}</Note>
      )}
      {series.length ? (
        <Charts series={series} unfolded={unfolded} />
      ) : (
        <Empty title={loading ? trans.__("Loading…") : trans.__("These runs have no reports")} />
      )}
      {children}
    </section>
  );
}
