/** Tests of the entry "Earlier Versions…" in the context menu of JupyterLab's file browser. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { IFileBrowserFactory } from "@jupyterlab/filebrowser";

import { ENGLISH } from "../../src/i18n";
import { Commands } from "../../src/ids";
import { addSnapshots } from "../../src/plugins/snapshots";
import type { IPanelModel } from "../../src/state/model";

interface Command {
  label: string;
  isVisible(): boolean;
  execute(): void;
}

/** Add the entry to a simulated JupyterLab whose file browser has these paths selected, or to one without a browser. */
function added(paths: string[] | null) {
  const known = new Map<string, Command>();
  const addItem = jest.fn();
  const app = {
    commands: { addCommand: (name: string, command: Command) => known.set(name, command) },
    serviceManager: { contents: { localPath: (path: string) => path.replace("drive:", "") } },
    contextMenu: { addItem },
  } as unknown as JupyterFrontEnd;
  const browser = paths && { selectedItems: () => paths.map((path) => ({ path }))[Symbol.iterator]() };
  const navigate = jest.fn();
  const model = { trans: ENGLISH, navigate } as unknown as IPanelModel;
  addSnapshots(app, model, { currentWidget: browser } as unknown as IFileBrowserFactory["tracker"]);
  const command = known.get(Commands.earlierVersions);
  if (!command) throw new Error("there is no command");
  return { command, addItem, navigate };
}

test("the entry is in the menu of files and folders, and shows the versions of the chosen one", () => {
  const { command, addItem, navigate } = added(["drive:work/data.csv"]);
  expect(addItem).toHaveBeenCalledWith(
    expect.objectContaining({ command: Commands.earlierVersions, selector: ".jp-DirListing-item[data-isdir]" }),
  );
  expect([command.label, command.isVisible()]).toEqual(["Earlier Versions…", true]);
  command.execute();
  expect(navigate.mock.calls).toEqual([[{ show: "versions", run: "", file: "work/data.csv" }]]);
});

test.each([[null], [[]], [["a", "b"]]])("it is hidden unless one file is chosen (%p)", (paths) => {
  const { command, navigate } = added(paths);
  expect(command.isVisible()).toBe(false);
  if (!paths?.length) command.execute();
  expect(navigate).not.toHaveBeenCalled();
});
