/** Opens the log of a run in JupyterLab's main area. */

import type { JSX } from "react";

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { MainAreaWidget, ReactWidget } from "@jupyterlab/apputils";

import { PanelContextProvider, type PanelContext } from "../components/context";
import { LogPage } from "../components/logs/logPage";
import { title } from "../format";
import { farandoleIcon } from "../icon";
import { runOf } from "../state/reducer";

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

  /** Set the title of the tab, which shows the run's name as soon as it is known. */
  setTitle: (title: string) => void = () => undefined;

  protected override render(): JSX.Element {
    return (
      <PanelContextProvider value={this.context}>
        <LogPage id={this.run} rank={this.rank} setTitle={this.setTitle} />
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
  const content = new LogContent(context, run, rank);
  const widget = new MainAreaWidget({ content });
  content.setTitle = (label) => (widget.title.label = label);
  widget.id = id;
  const summary = runOf(context.model.state, run);
  widget.title.label = context.trans.__("Log of %1, rank %2", summary ? title(summary) : run, rank);
  widget.title.caption = run;
  widget.title.icon = farandoleIcon;
  widget.title.closable = true;
  app.shell.add(widget, "main");
  app.shell.activateById(id);
}
