import { useEffect, useState } from "react";

import { RequestError } from "../../net/requestError";
import type { RunMessage } from "../../wire";
import { usePanelContext, usePanelState, useSubscription } from "../context";

/** What the server knows of a run. */
export type StoredRun = Pick<RunMessage, "summary" | "view">;

/**
 * Return a run from the run store, or null if the server does not know the run or does not answer.
 *
 * The run is fetched when the connection opens and when the run appears in the list of runs, until that succeeds. Only a
 * run that may change is subscribed to, because a notebook may show many runs. A run without a driver is lost, until a
 * notebook attaches to it.
 */
export function useStoredRun(id: string, byRank: boolean): StoredRun | null {
  const { model } = usePanelContext();
  const state = usePanelState();
  const [stored, setStored] = useState<StoredRun | null>(null);
  const [live, setLive] = useState(false);
  // The id comes from a notebook and may be a name that all objects inherit, such as "constructor".
  const streamed = Object.hasOwn(state.views, id) ? state.views[id] : undefined;
  const known = stored !== null;
  const listed = state.runs?.some((run) => run.id === id) ?? false;
  const connected = state.connection !== "lost";
  useSubscription({ runs: live || byRank ? [id] : [], byRank });
  // The page forgets what it has received once it no longer subscribes to the run.
  useEffect(() => {
    if (streamed) setStored(streamed);
  }, [streamed]);
  useEffect(() => {
    let mounted = true;
    const fetch = async () => {
      try {
        const found = await model.api.run(id);
        if (!mounted) return;
        setStored(found);
        setLive(!found.view.ended || found.view.status === "lost");
      } catch (error) {
        // The cell then shows a static picture of the run, so the panel does not report the problem.
        if (!(error instanceof RequestError)) throw error;
      }
    };
    if (connected && !known) void fetch();
    return () => {
      mounted = false;
    };
  }, [model, id, listed, connected, known]);
  return streamed ?? stored;
}
