import { useEffect, useState, type JSX } from "react";

import { duration } from "../../format";
import { useTranslator } from "../../i18n";
import { elapsedSeconds } from "../../state/reducer";
import type { RunSummary, RunView } from "../../wire";
import { usePanelState } from "../context";

/** The duration of a run, updated each second while the run is active. */
export function Elapsed({ run }: { run: RunSummary }): JSX.Element {
  const state = usePanelState();
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!run.goes_on) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [run.goes_on]);
  return <>{duration(elapsedSeconds(run, state, now))}</>;
}

/** The estimated time left of a running run. It is unknown if the run has no nested loops. */
export function TimeLeft({ view: { status, seconds_left: left } }: { view: RunView }): JSX.Element | null {
  const trans = useTranslator();
  return status === "running" && left !== null ? <> · {trans.__("about %1 left", duration(left))}</> : null;
}
