/** What a mode of `fd.sync` costs a run. */

import type { JSX } from "react";

import { bytes, number, percent } from "../../format";
import type { RunView } from "../../wire";
import { usePanelContext } from "../context";

export function SyncLine({ view }: { view: RunView }): JSX.Element | null {
  const { trans } = usePanelContext();
  if (!view.sync) return null;
  const { mode, waiting, bytes_per_step: sent, staleness } = view.sync;
  const facts = [
    waiting !== null && trans.__("waiting for the network %1", percent(100 * waiting)),
    trans.__("%1 per step and rank", bytes(sent)),
    staleness > 0 && trans._n("%1 step late", "%1 steps late", staleness, number(staleness)),
  ];
  return (
    <div className="fd-facts">
      {trans.__("Averages: %1", mode)} · {facts.filter(Boolean).join(" · ")}
    </div>
  );
}
