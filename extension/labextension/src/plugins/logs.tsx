/** Opens the log of a run in JupyterLab's main area. */

import type { JSX } from "react";

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { MainAreaWidget, ReactWidget } from "@jupyterlab/apputils";

import { PanelContextProvider, type PanelContext } from "../components/context";
import { LogPage } from "../components/logs/logPage";
import { farandoleIcon } from "../icon";

class LogContent extends ReactWidget {
  constructor(
    private readonly context: PanelContext,
    private readonly run: string,
    private rank: number,
  ) {
    super();
    this.addClass("fd");
    this.addClass("fd-log-page");
  }

  showRank(rank: number): void {
    this.rank = rank;
    this.update();
  }

  protected override render(): JSX.Element {
    return (
      <PanelContextProvider value={this.context}>
        <LogPage id={this.run} rank={this.rank} />
      </PanelContextProvider>
    );
  }
}

/** Show the log of a rank. The log of a run that is already open is activated. */
export function openLog(app: JupyterFrontEnd, context: PanelContext, run: string, rank: number): void {
  const id = `farandole-log-${run}`;
  for (const widget of app.shell.widgets("main")) {
    if (widget.id !== id || !(widget instanceof MainAreaWidget)) continue;
    (widget.content as LogContent).showRank(rank);
    app.shell.activateById(id);
    return;
  }
  const widget = new MainAreaWidget({ content: new LogContent(context, run, rank) });
  widget.id = id;
  widget.title.label = context.trans.__("Log of %1", run);
  widget.title.icon = farandoleIcon;
  widget.title.closable = true;
  app.shell.add(widget, "main");
  app.shell.activateById(id);
}
