/** The item in JupyterLab's status bar. It shows the number of ranks, the newest active run and the used GPU memory. */

import type { JSX } from "react";

import { ReactWidget } from "@jupyterlab/apputils";

import type { IPanelModel } from "../state/model";
import { activeRuns, isKnown } from "../state/reducer";
import { factsOf, type Facts } from "../state/status";

/** The values, and whether the server and the hub have answered. */
type Shown = Facts & { readonly known: boolean };

export class StatusItem extends ReactWidget {
  constructor(
    private readonly model: IPanelModel,
    private readonly open: () => void,
  ) {
    super();
    this.addClass("fd-statusbar");
    this.shown = this.facts();
    model.changed.connect(() => {
      const facts = this.facts();
      if (JSON.stringify(facts) === JSON.stringify(this.shown)) return;
      this.shown = facts;
      this.update();
    });
  }

  protected override render(): JSX.Element {
    const { shown } = this;
    const { trans } = this.model;
    const words = [
      this.ranks(),
      shown.starting ? trans.__("a cluster is starting") : null,
      shown.dead ? trans.__("%1 dead", shown.dead) : null,
      shown.run,
      shown.gpu === null ? null : trans.__("GPU %1", shown.gpu),
    ];
    return (
      <button type="button" title={trans.__("Open the Farandole panel")} onClick={this.open}>
        Farandole: {words.filter(Boolean).join(" · ")}
      </button>
    );
  }

  private ranks(): string | null {
    const { shown } = this;
    const { trans } = this.model;
    if (shown.ranks) return trans._n("%1 rank", "%1 ranks", shown.ranks);
    if (shown.starting) return null;
    return shown.known ? trans.__("no cluster") : trans.__("not connected");
  }

  private facts(): Shown {
    const { state } = this.model;
    return { ...factsOf(state.clusters ?? [], activeRuns(state)), known: isKnown(state) };
  }

  private shown: Shown;
}
