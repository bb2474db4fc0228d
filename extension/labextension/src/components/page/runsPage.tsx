/** The page of runs in the main area. It shows the table of all runs, one run, or a comparison of runs. */

import { useState, type JSX } from "react";

import { useSessionState } from "../../hooks";
import { usePanelContext } from "../context";
import { Problems } from "../panel";
import { Empty } from "../parts";
import { Compare } from "../runs/compare";
import { RunDetailView } from "../runs/run";
import { Differences } from "./differences";
import { TableView, type Selection } from "./tableView";
import { useKept, type Store } from "./useKept";

export function RunsPage({ store }: { store: Store | null }): JSX.Element {
  const { trans } = usePanelContext();
  // The ids of the runs that are shown, which do not contain spaces. The table is shown if there is none.
  const [shown, setShown] = useSessionState("page", "");
  const [kept, keep] = useKept(store);
  const [selected, setSelected] = useState<Selection>(new Map());
  const [opened, setOpened] = useState(false);
  const [previous, setPrevious] = useState<string | null>(null);
  const ids = shown.split(" ").filter(Boolean);
  const [id = ""] = ids;
  const open = (wanted: readonly string[]) => {
    setOpened(true);
    setShown(wanted.join(" "));
  };
  const close = () => {
    setPrevious(id);
    setShown("");
  };
  return (
    <>
      <Problems />
      <div className="fd-page-content">
        <h2>{trans.__("Runs")}</h2>
        {ids.length === 0 && !kept && <Empty title={trans.__("Loading…")} />}
        {ids.length === 0 && kept && <TableView {...{ kept, keep, selected, setSelected, previous, open }} />}
        {ids.length === 1 && <RunDetailView key={id} id={id} focus={opened} close={close} unfolded />}
        {ids.length > 1 && (
          <Compare ids={ids} close={close} unfolded>
            <Differences ids={ids} />
          </Compare>
        )}
      </div>
    </>
  );
}
