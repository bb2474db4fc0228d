/** The comparison of several runs, with one chart for each series. */

import { useMemo, type JSX } from "react";

import { Charts } from "../../charts/charts";
import { compare } from "../../charts/comparison";
import { usePanelContext, usePanelState, useSubscription } from "../context";
import { Empty } from "../parts";
import { BackButton } from "./run";

export function Compare({ ids, close }: { ids: readonly string[]; close: () => void }): JSX.Element {
  const { trans } = usePanelContext();
  const { views } = usePanelState();
  useSubscription({ runs: ids });
  const loading = ids.some((id) => !views[id]);
  const series = useMemo(() => compare(ids.flatMap((id) => views[id]?.view ?? [])), [ids, views]);
  return (
    <section className="fd-detail" aria-label={trans.__("Comparison of runs")}>
      <BackButton focus close={close} />
      {series.length ? (
        <Charts series={series} />
      ) : (
        <Empty title={loading ? trans.__("Loading…") : trans.__("These runs have no reports")} />
      )}
    </section>
  );
}
