/** Makes the context of components from the services of JupyterLab. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Dialog, showDialog } from "@jupyterlab/apputils";

import type { PanelContext } from "../components/context";
import { Commands } from "../ids";
import type { Origin } from "../notebooks/cells";
import type { IPanelModel } from "../state/model";

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
  };
}
