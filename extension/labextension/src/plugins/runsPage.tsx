/** The widget of the page of runs, which JupyterLab shows in its main area. */

import type { JSX } from "react";

import type { ILayoutRestorer, JupyterFrontEnd } from "@jupyterlab/application";
import { ReactWidget, WidgetTracker, type ICommandPalette } from "@jupyterlab/apputils";
import { PageConfig } from "@jupyterlab/coreutils";
import type { Message } from "@lumino/messaging";

import { PanelContextProvider } from "../components/context";
import { RunsPage } from "../components/page/runsPage";
import type { Store } from "../components/page/useKept";
import { farandoleIcon } from "../icon";
import { Commands, RUNS_ID } from "../ids";
import type { IPanelModel } from "../state/model";
import { contextOf } from "./context";

export class RunsWidget extends ReactWidget {
  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly model: IPanelModel,
    private readonly store: Store | null,
  ) {
    super();
    this.id = RUNS_ID;
    this.title.icon = farandoleIcon;
    this.title.label = model.trans.__("Farandole runs");
    this.title.caption = model.trans.__("All runs of Farandole");
    this.title.closable = true;
    this.addClass("fd");
    this.addClass("fd-panel");
    this.addClass("fd-page");
    this.node.tabIndex = -1;
    this.node.setAttribute("role", "region");
    this.node.setAttribute("aria-label", model.trans.__("Farandole runs"));
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.update();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this.update();
  }

  /** Focus the page, unless one of its elements already has the focus. */
  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    if (!this.node.contains(document.activeElement)) this.node.focus();
  }

  protected override render(): JSX.Element {
    return (
      <PanelContextProvider value={contextOf(this.app, this.model, this.isVisible)}>
        <RunsPage store={this.store} />
      </PanelContextProvider>
    );
  }
}

interface Services {
  readonly palette: ICommandPalette | null;
  readonly restorer: ILayoutRestorer | null;
  readonly store: Store | null;
}

/** Add the command that opens the page. JupyterLab opens the page again when its own page is reloaded. */
export function addRunsPage(app: JupyterFrontEnd, model: IPanelModel, { palette, restorer, store }: Services): void {
  const { trans } = model;
  const tracker = new WidgetTracker<RunsWidget>({ namespace: RUNS_ID });
  let widget: RunsWidget | null = null;
  const open = async () => {
    if (!widget || widget.isDisposed) {
      widget = new RunsWidget(app, model, store);
      // The main area of Notebook 7 has room for one widget only.
      app.shell.add(widget, PageConfig.getOption("notebookPage") ? "right" : "main");
      await tracker.add(widget);
    }
    app.shell.activateById(RUNS_ID);
  };
  app.commands.addCommand(Commands.runs, { label: trans.__("Farandole Runs"), icon: farandoleIcon, execute: open });
  palette?.addItem({ command: Commands.runs, category: "Farandole" });
  if (restorer) void restorer.restore(tracker, { command: Commands.runs, name: () => RUNS_ID });
}
