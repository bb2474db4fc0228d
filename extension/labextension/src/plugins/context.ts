/** Makes the context of components from the services of JupyterLab. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Dialog, InputDialog, showDialog } from "@jupyterlab/apputils";

import type { PanelContext } from "../components/context";
import { Commands } from "../ids";
import type { Origin } from "../notebooks/cells";
import type { IPanelModel } from "../state/model";

const REFRESH = "filebrowser:refresh";

export function contextOf(app: JupyterFrontEnd, model: IPanelModel, visible: boolean): PanelContext {
  return {
    model,
    trans: model.trans,
    visible,
    openNotebook: ({ notebook, kernel }: Origin, cell = "") =>
      void app.commands.execute(Commands.openCell, { path: notebook, kernel, cell }),
    openLog: (id, rank) => void app.commands.execute(Commands.openLog, { id, rank }),
    insertTraining: () => void app.commands.execute(Commands.insertTraining),
    openPage: () => void app.commands.execute(Commands.runs),
    confirm: async (title: string, body: string, action: string) => {
      const buttons = [Dialog.cancelButton(), Dialog.warnButton({ label: action })];
      return (await showDialog({ title, body, buttons, defaultButton: 0 })).button.accept;
    },
    choose: async (title: string, body: string, actions: readonly string[]) => {
      const buttons = [Dialog.cancelButton(), ...actions.map((label) => Dialog.okButton({ label }))];
      const { button } = await showDialog({ title, body, buttons, defaultButton: 0 });
      return button.accept ? actions.indexOf(button.label) : -1;
    },
    ask: async (title: string, label: string, text: string, okLabel: string) =>
      (await InputDialog.getText({ title, label, text, okLabel })).value,
    refreshFiles: () => {
      // Pages of Notebook 7 with a notebook have no file browser.
      if (app.commands.hasCommand(REFRESH)) void app.commands.execute(REFRESH);
    },
  };
}
