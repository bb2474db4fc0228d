/**
 * The plugins of the extension.
 *
 * Notebook 7 has no status bar, and some of its pages have no notebook. The plugins therefore declare services as
 * optional if they may be missing.
 */

import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette } from "@jupyterlab/apputils";
import { ICompletionProviderManager } from "@jupyterlab/completer";
import { IDefaultFileBrowser, IFileBrowserFactory } from "@jupyterlab/filebrowser";
import { ILauncher } from "@jupyterlab/launcher";
import { IMainMenu } from "@jupyterlab/mainmenu";
import { INotebookTracker } from "@jupyterlab/notebook";
import { IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { IStateDB } from "@jupyterlab/statedb";
import { IStatusBar } from "@jupyterlab/statusbar";
import { ITranslator, nullTranslator } from "@jupyterlab/translation";

import { Commands, PANEL_ID, Plugins } from "./ids";
import { Api } from "./net/api";
import { addCommands } from "./plugins/commands";
import { RankCompleter } from "./plugins/completer";
import { contextOf } from "./plugins/context";
import { markCells } from "./plugins/marks";
import { addNotices } from "./plugins/notifications/notices";
import { addNotifications } from "./plugins/notifications/runs";
import { PanelWidget } from "./plugins/panel";
import { RUN_TYPE, RunRenderer } from "./plugins/renderer";
import { StatusItem } from "./plugins/statusbar";
import { addRunsPage } from "./plugins/runsPage";
import { saveInTurn } from "./plugins/saves";
import { addSnapshots } from "./plugins/snapshots";
import { addTemplates } from "./plugins/templates";
import { IPanelModel, PanelModel } from "./state/model";

const model: JupyterFrontEndPlugin<IPanelModel> = {
  id: Plugins.model,
  description: "Connects the page to Farandole's extension of the notebook server.",
  autoStart: true,
  provides: IPanelModel,
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, translator: ITranslator | null) => {
    const trans = (translator ?? nullTranslator).load("farandole");
    const made = new PanelModel(new Api(app.serviceManager.serverSettings), trans);
    made.start();
    return made;
  },
};

const panel: JupyterFrontEndPlugin<void> = {
  id: Plugins.panel,
  description: "Shows clusters, runs and GPUs in the left bar.",
  autoStart: true,
  requires: [IPanelModel],
  optional: [ILayoutRestorer],
  activate: (app: JupyterFrontEnd, state: IPanelModel, restorer: ILayoutRestorer | null) => {
    const widget = new PanelWidget(app, state);
    app.shell.add(widget, "left", { rank: 550, type: "Farandole" });
    restorer?.add(widget, PANEL_ID);
  },
};

const runs: JupyterFrontEndPlugin<void> = {
  id: Plugins.runs,
  description: "Shows the table of all runs, a run or a comparison in the main area.",
  autoStart: true,
  requires: [IPanelModel],
  optional: [ICommandPalette, ILayoutRestorer, IStateDB],
  activate: (
    app: JupyterFrontEnd,
    state: IPanelModel,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    store: IStateDB | null,
  ) => addRunsPage(app, state, { palette, restorer, store }),
};

const snippets: JupyterFrontEndPlugin<void> = {
  id: Plugins.snippets,
  description: "Commands for the palette and the keyboard: the panel, a cluster, a training cell.",
  autoStart: true,
  requires: [IPanelModel],
  optional: [INotebookTracker, ICommandPalette],
  activate: addCommands,
};

const status: JupyterFrontEndPlugin<void> = {
  id: Plugins.status,
  description: "Shows ranks, run and GPU memory in the status bar.",
  autoStart: true,
  requires: [IPanelModel],
  optional: [IStatusBar],
  activate: (app: JupyterFrontEnd, state: IPanelModel, bar: IStatusBar | null) => {
    if (!bar) return;
    const open = () => void app.commands.execute(Commands.open);
    const item = new StatusItem(state, open);
    bar.registerStatusItem(Plugins.status, { item, align: "left", rank: 900 });
  },
};

const marks: JupyterFrontEndPlugin<void> = {
  id: Plugins.marks,
  description: "Marks the cells with active runs.",
  autoStart: true,
  requires: [IPanelModel],
  optional: [INotebookTracker],
  activate: (_app: JupyterFrontEnd, state: IPanelModel, tracker: INotebookTracker | null) => {
    if (tracker) markCells(tracker, state);
  },
};

const saves: JupyterFrontEndPlugin<void> = {
  id: Plugins.saves,
  description: "Runs the saves of each notebook one after the other.",
  autoStart: true,
  optional: [INotebookTracker],
  activate: (_app: JupyterFrontEnd, tracker: INotebookTracker | null) => {
    if (tracker) saveInTurn(tracker);
  },
};

const completion: JupyterFrontEndPlugin<void> = {
  id: Plugins.completion,
  description: "Completes names in cells that run on the ranks.",
  autoStart: true,
  optional: [ICompletionProviderManager],
  activate: (_app: JupyterFrontEnd, manager: ICompletionProviderManager | null) => {
    manager?.registerProvider(new RankCompleter());
  },
};

const renderer: JupyterFrontEndPlugin<void> = {
  id: Plugins.renderer,
  description: "Shows runs in the outputs of cells.",
  autoStart: true,
  requires: [IPanelModel, IRenderMimeRegistry],
  activate: (app: JupyterFrontEnd, state: IPanelModel, registry: IRenderMimeRegistry) => {
    const context = contextOf(app, state, true);
    // Untrusted notebooks may use this renderer, as it shows nothing of the output but the static forms, for which
    // JupyterLab's renderers apply. The rank is better than those of the static forms.
    const createRenderer = () => new RunRenderer(context, registry);
    registry.addFactory({ safe: true, mimeTypes: [RUN_TYPE], createRenderer }, 0);
  },
};

const notifications: JupyterFrontEndPlugin<void> = {
  id: Plugins.notifications,
  description: "Notifies the user when a run ends, fails, shows no activity or reports NaN.",
  autoStart: true,
  requires: [IPanelModel],
  optional: [ISettingRegistry, ICommandPalette],
  activate: addNotifications,
};

const notices: JupyterFrontEndPlugin<void> = {
  id: Plugins.notices,
  description: "Shows the notices of the hub's operators.",
  autoStart: true,
  requires: [IPanelModel],
  activate: (_app: JupyterFrontEnd, state: IPanelModel) => addNotices(state),
};

const templates: JupyterFrontEndPlugin<void> = {
  id: Plugins.templates,
  description: "Creates notebooks from templates: a card in the launcher, a command, and an entry in the Help menu.",
  autoStart: true,
  requires: [IPanelModel],
  optional: [ILauncher, ICommandPalette, IMainMenu, IDefaultFileBrowser],
  activate: addTemplates,
};

const snapshots: JupyterFrontEndPlugin<void> = {
  id: Plugins.snapshots,
  description: "Shows the earlier versions of a file, from the menu of the file browser.",
  autoStart: true,
  requires: [IPanelModel],
  optional: [IFileBrowserFactory],
  activate: (app: JupyterFrontEnd, state: IPanelModel, factory: IFileBrowserFactory | null) => {
    if (factory) addSnapshots(app, state, factory.tracker);
  },
};

export default [
  model,
  panel,
  runs,
  snippets,
  status,
  marks,
  saves,
  completion,
  renderer,
  notifications,
  notices,
  templates,
  snapshots,
];
