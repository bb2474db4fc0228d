/** The entry in the context menu of JupyterLab's file browser that shows the earlier versions of a file. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { IFileBrowserFactory } from "@jupyterlab/filebrowser";

import { Commands } from "../ids";
import type { IPanelModel } from "../state/model";

export function addSnapshots(app: JupyterFrontEnd, model: IPanelModel, tracker: IFileBrowserFactory["tracker"]): void {
  const chosen = () => [...(tracker.currentWidget?.selectedItems() ?? [])];
  app.commands.addCommand(Commands.earlierVersions, {
    label: model.trans.__("Earlier Versions…"),
    caption: model.trans.__("Show the snapshots that have this file or folder"),
    isVisible: () => chosen().length === 1,
    execute: () => {
      const [item] = chosen();
      if (!item) return;
      const file = app.serviceManager.contents.localPath(item.path);
      model.navigate({ show: "versions", run: "", file });
    },
  });
  // The entry is below those that copy and download files.
  app.contextMenu.addItem({
    command: Commands.earlierVersions,
    selector: ".jp-DirListing-item[data-isdir]",
    rank: 13,
  });
}
