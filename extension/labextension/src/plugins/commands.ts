/** Adds Farandole's commands to JupyterLab and to its command palette. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { ICommandPalette } from "@jupyterlab/apputils";
import type { INotebookTracker } from "@jupyterlab/notebook";

import { farandoleIcon } from "../icon";
import { Commands, PANEL_ID } from "../ids";
import { currentNotebook, insertCells, openAt, openedIn, sourcesOf } from "../notebooks/actions";
import { setupCell, startCell, TRAINING_CELL, type Target } from "../notebooks/snippets";
import type { IPanelModel } from "../state/model";
import type { PanelState } from "../state/reducer";
import { contextOf } from "./context";
import { openLog } from "./logs";

export function addCommands(
  app: JupyterFrontEnd,
  model: IPanelModel,
  tracker: INotebookTracker | null,
  palette: ICommandPalette | null,
): void {
  const { commands } = app;
  const { trans } = model;
  const open = () => app.shell.activateById(PANEL_ID);
  model.navigation.connect(open);

  /** Insert the cells that `cells` returns into the current notebook. */
  const insert = async (cells: (target: Target, hub: boolean) => (string | null)[]) => {
    const notebook = await currentNotebook(app, tracker);
    if (!notebook) {
      // The panel shows the problem, because some pages do not show Jupyter's own notifications.
      model.showProblem(trans.__("Nothing was inserted: this page has no notebook. Open one, and insert it there."));
      open();
      return;
    }
    const sources = cells({ ...openedIn(notebook), cells: sourcesOf(notebook) }, mayHaveHub(model.state));
    insertCells(
      notebook,
      sources.filter((source) => source !== null),
    );
  };
  const clusters = () => model.state.clusters ?? [];
  let startable = mayHaveHub(model.state);
  model.changed.connect(() => {
    if (mayHaveHub(model.state) === startable) return;
    startable = !startable;
    commands.notifyCommandChanged(Commands.startCluster);
  });

  commands.addCommand(Commands.open, { label: trans.__("Show Clusters and Runs"), icon: farandoleIcon, execute: open });
  commands.addCommand(Commands.startCluster, {
    label: trans.__("Start a Cluster…"),
    isEnabled: () => startable,
    execute: () => model.navigate({ show: "start", run: "" }),
  });
  commands.addCommand(Commands.insertTraining, {
    label: trans.__("Insert Training Cell"),
    caption: trans.__("A complete training cell, after a cell that sets up a cluster if the notebook has none"),
    execute: () => insert((target, hub) => [setupCell(clusters(), target, hub), TRAINING_CELL]),
  });
  commands.addCommand(Commands.insertStart, {
    label: trans.__("Insert Cell That Starts a Cluster"),
    execute: () => insert((target, hub) => [startCell(clusters(), target, hub)]),
  });
  commands.addCommand(Commands.openCell, {
    label: trans.__("Open a Notebook at a Cell"),
    execute: (args) => openAt(app, { notebook: text(args["path"]), kernel: text(args["kernel"]) }, text(args["cell"])),
  });
  commands.addCommand(Commands.openLog, {
    label: trans.__("Open the Log of a Run"),
    execute: ({ id, rank }) => openLog(app, contextOf(app, model, true), text(id), typeof rank === "number" ? rank : 0),
  });
  for (const command of [Commands.open, Commands.startCluster, Commands.insertTraining, Commands.insertStart]) {
    palette?.addItem({ command, category: "Farandole" });
  }
}

/** Return whether clusters can start on a hub. Until the server has sent whether there is a hub, this is assumed. */
function mayHaveHub({ hub, clusters }: PanelState): boolean {
  return hub !== null || clusters === null;
}

/** Return an argument of a command, or an empty string if the argument is not a string. */
function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}
