/** The widget of the panel in JupyterLab's left sidebar. */

import type { JSX } from "react";

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { ReactWidget } from "@jupyterlab/apputils";
import type { Message } from "@lumino/messaging";

import { PanelContextProvider } from "../components/context";
import { Panel } from "../components/panel";
import { farandoleIcon } from "../icon";
import { PANEL_ID } from "../ids";
import type { IPanelModel } from "../state/model";
import { contextOf } from "./context";

export class PanelWidget extends ReactWidget {
  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly model: IPanelModel,
  ) {
    super();
    this.id = PANEL_ID;
    this.title.icon = farandoleIcon;
    this.title.caption = model.trans.__("Farandole: clusters, runs and GPUs");
    this.addClass("fd");
    this.addClass("fd-panel");
    this.node.setAttribute("role", "region");
    this.node.setAttribute("aria-label", "Farandole");
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.update();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this.update();
  }

  /** Focus the selected tab, unless an element of the panel already has the focus. */
  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    if (this.node.contains(document.activeElement)) return;
    this.node.querySelector<HTMLElement>('[role="tab"][aria-selected="true"]')?.focus();
  }

  protected override render(): JSX.Element {
    return (
      <PanelContextProvider value={contextOf(this.app, this.model, this.isVisible)}>
        <Panel />
      </PanelContextProvider>
    );
  }
}
