/** Tests of the command that opens the page of runs, with simulated objects of JupyterLab. */

import type { ILayoutRestorer, JupyterFrontEnd } from "@jupyterlab/application";

import { ENGLISH } from "../../src/i18n";
import { Commands, RUNS_ID } from "../../src/ids";
import { addRunsPage } from "../../src/plugins/runsPage";
import type { IPanelModel } from "../../src/state/model";

jest.mock("@jupyterlab/apputils", () => ({
  WidgetTracker: class {
    add = jest.fn(() => Promise.resolve());
  },
  ReactWidget: class {
    readonly node = document.createElement("div");
    readonly title = {};
    isDisposed = false;
    addClass = jest.fn();
  },
}));
jest.mock("@jupyterlab/ui-components", () => ({ LabIcon: jest.fn() }));
jest.mock("@jupyterlab/coreutils", () => ({ PageConfig: { getOption: jest.fn(() => "") } }));
const { getOption } = jest.requireMock<{ PageConfig: { getOption: jest.Mock } }>("@jupyterlab/coreutils").PageConfig;

/** Add the command to a simulated JupyterLab, and return what the test calls and inspects. */
function added() {
  const shell = { add: jest.fn(), activateById: jest.fn() };
  const restore = jest.fn();
  let open: () => Promise<void> = () => Promise.reject(new Error("there is no command"));
  const addCommand = (name: string, { execute }: { execute: () => Promise<void> }) => {
    if (name === Commands.runs) open = execute;
  };
  const app = { shell, commands: { addCommand } } as unknown as JupyterFrontEnd;
  const restorer = { restore } as unknown as ILayoutRestorer;
  addRunsPage(app, { trans: ENGLISH } as unknown as IPanelModel, { palette: null, restorer, store: null });
  return { shell, restore, open: () => open() };
}

test("the command opens one page in the main area, and a closed page again", async () => {
  const { shell, open } = added();
  await open();
  await open();
  expect(shell.add).toHaveBeenCalledTimes(1);
  expect(shell.add).toHaveBeenCalledWith(expect.objectContaining({ id: RUNS_ID }), "main");
  expect(shell.activateById).toHaveBeenCalledTimes(2);
  const [[widget]] = shell.add.mock.calls as [[{ isDisposed: boolean }]];
  widget.isDisposed = true;
  await open();
  expect(shell.add).toHaveBeenCalledTimes(2);
});

test("the page is in the right side bar of Notebook 7, whose main area has room for one widget", async () => {
  getOption.mockReturnValueOnce("notebooks");
  const { shell, open } = added();
  await open();
  expect(shell.add).toHaveBeenCalledWith(expect.anything(), "right");
});

test("JupyterLab restores the page with the command", () => {
  const [, options] = added().restore.mock.calls[0] as [unknown, { command: string }];
  expect(options.command).toBe(Commands.runs);
});
