/** Creates notebooks from templates: the card in the launcher, the commands, and the entry in the Help menu. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Dialog, showDialog, type ICommandPalette } from "@jupyterlab/apputils";
import type { IDefaultFileBrowser } from "@jupyterlab/filebrowser";
import type { ILauncher } from "@jupyterlab/launcher";
import type { IMainMenu } from "@jupyterlab/mainmenu";

import { farandoleIcon } from "../icon";
import { Commands, PANEL_ID } from "../ids";
import type { IPanelModel } from "../state/model";
import { TemplateChooser } from "./chooser";

export function addTemplates(
  app: JupyterFrontEnd,
  model: IPanelModel,
  launcher: ILauncher | null,
  palette: ICommandPalette | null,
  menu: IMainMenu | null,
  browser: IDefaultFileBrowser | null,
): void {
  const { commands } = app;
  const { trans } = model;

  commands.addCommand(Commands.newFromTemplate, {
    label: ({ isLauncher }) =>
      isLauncher ? trans.__("Farandole: distributed training") : trans.__("New Notebook from a Template…"),
    caption: trans.__("A notebook that trains on several processes at once, for your own data and model"),
    icon: farandoleIcon,
    execute: async ({ cwd }) => {
      const path = await create(app, model, typeof cwd === "string" ? cwd : (browser?.model.path ?? ""));
      if (path !== null) await commands.execute("docmanager:open", { path, factory: "Notebook" });
    },
  });
  commands.addCommand(Commands.about, {
    label: trans.__("About Farandole"),
    execute: async () => {
      if (await showAbout(model)) await commands.execute(Commands.newFromTemplate);
    },
  });
  launcher?.add({
    command: Commands.newFromTemplate,
    args: { isLauncher: true },
    category: "Notebook",
    rank: 100,
    kernelIconUrl: `data:image/svg+xml,${encodeURIComponent(farandoleIcon.svgstr)}`,
  });
  palette?.addItem({ command: Commands.newFromTemplate, category: "Farandole" });
  menu?.helpMenu.addGroup([{ command: Commands.about }], 5);
}

/** Let the user choose a template, and create a notebook in a folder. Return its path, or null if there is none. */
async function create(app: JupyterFrontEnd, model: IPanelModel, cwd: string): Promise<string | null> {
  const { trans } = model;
  const folder = app.serviceManager.contents.localPath(cwd);
  const made = await model.attempt(async () => {
    const { templates } = await model.api.templates();
    const { button, value } = await showDialog({
      title: trans.__("New notebook from a template"),
      body: new TemplateChooser(templates),
      buttons: [Dialog.cancelButton(), Dialog.okButton({ label: trans.__("Create") })],
      focusNodeSelector: "input:checked",
    });
    return { created: button.accept && value ? await model.api.createNotebook(value, { folder }) : null };
  });
  // The panel shows why a request was refused.
  if (made === null) app.shell.activateById(PANEL_ID);
  return made?.created?.path ?? null;
}

/** Show what Farandole is and where its help is. Return whether the user wants to choose a template. */
async function showAbout({ trans }: IPanelModel): Promise<boolean> {
  const body = trans.__(
    "One notebook cell trains on many nodes, and its metrics stream back live. The templates and the notebook “Your " +
      "first distributed training” show how. In a notebook, %cluster? lists the options.",
  );
  const [close, templates] = [trans.__("Close"), trans.__("Templates…")];
  const buttons = [Dialog.cancelButton({ label: close }), Dialog.okButton({ label: templates })];
  return (await showDialog({ title: trans.__("About Farandole"), body, buttons })).button.accept;
}
