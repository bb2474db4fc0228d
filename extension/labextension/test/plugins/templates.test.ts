/** Tests of the card in the launcher, the commands and the dialog for templates. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { ICommandPalette } from "@jupyterlab/apputils";
import type { IDefaultFileBrowser } from "@jupyterlab/filebrowser";
import type { IMainMenu } from "@jupyterlab/mainmenu";

import { ENGLISH } from "../../src/i18n";
import { Commands, PANEL_ID } from "../../src/ids";
import { TemplateChooser } from "../../src/plugins/chooser";
import { addTemplates } from "../../src/plugins/templates";
import type { IPanelModel } from "../../src/state/model";
import type * as wire from "../../src/wire";
import { example } from "../examples";

jest.mock("@jupyterlab/apputils", () => ({
  Dialog: { cancelButton: () => "cancel", okButton: () => "ok" },
  showDialog: jest.fn(),
}));
jest.mock("@jupyterlab/ui-components", () => ({ LabIcon: jest.fn() }));
jest.mock("@lumino/widgets", () => ({
  Widget: class {
    readonly node = document.createElement("div");
    addClass = jest.fn();
  },
}));
const { showDialog } = jest.requireMock<{ showDialog: jest.Mock }>("@jupyterlab/apputils");

interface Shown {
  body: TemplateChooser;
}
interface Command {
  label: string | ((args: object) => string);
  execute(args: object): Promise<void>;
}

const TEMPLATES = example<wire.Templates>("templates");
const CREATED = example<wire.CreatedNotebook>("created-notebook");

/** Add the commands to a simulated JupyterLab, and return them with mocks to inspect. */
function added({ api = {}, there = true } = {}) {
  const known = new Map<string, Command>();
  const [execute, activateById] = [jest.fn(), jest.fn()];
  const app = {
    commands: { addCommand: (name: string, command: Command) => known.set(name, command), execute },
    serviceManager: { contents: { localPath: (path: string) => path.replace("drive:", "") } },
    shell: { activateById },
  } as unknown as JupyterFrontEnd;
  const createNotebook = jest.fn(() => Promise.resolve(CREATED));
  const attempt = (request: () => Promise<unknown>) => request().catch(() => null);
  const server = { templates: () => Promise.resolve(TEMPLATES), createNotebook, ...api };
  const model = { api: server, trans: ENGLISH, attempt } as unknown as IPanelModel;
  const [launcher, palette, addGroup] = [{ add: jest.fn() }, { addItem: jest.fn() }, jest.fn()];
  addTemplates(
    app,
    model,
    there ? launcher : null,
    there ? (palette as unknown as ICommandPalette) : null,
    there ? ({ helpMenu: { addGroup } } as unknown as IMainMenu) : null,
    there ? ({ model: { path: "from-browser" } } as unknown as IDefaultFileBrowser) : null,
  );
  const run = (name: string, args = {}) => known.get(name)?.execute(args);
  return { known, run, execute, activateById, createNotebook, launcher, palette, addGroup };
}

beforeEach(() => {
  showDialog.mockReset();
  const accepted = { button: { accept: true } };
  showDialog.mockImplementation(({ body }: Shown) => Promise.resolve({ ...accepted, value: body.getValue() }));
});

test("the launcher has a card, the palette a command and the Help menu an entry", () => {
  const { known, launcher, palette, addGroup } = added();
  const [[card]] = launcher.add.mock.calls as [[{ command: string; args: object }]];
  const label = known.get(card.command)?.label as (args: object) => string;
  expect(label(card.args)).toBe("Farandole: distributed training");
  expect(label({})).toBe("New Notebook from a Template…");
  expect(palette.addItem).toHaveBeenCalledWith({ command: Commands.newFromTemplate, category: "Farandole" });
  expect(addGroup).toHaveBeenCalledWith([{ command: Commands.about }], expect.anything());
});

test.each([
  [{ cwd: "drive:course" }, true, "course"],
  [{}, true, "from-browser"],
  [{}, false, ""],
])("the notebook is created and opened (%p)", async (args, there, folder) => {
  const { run, execute, createNotebook } = added({ there });
  await run(Commands.newFromTemplate, args);
  expect(createNotebook).toHaveBeenCalledWith("image-classifier", { folder });
  expect(execute).toHaveBeenCalledWith("docmanager:open", { path: CREATED.path, factory: "Notebook" });
});

test("the dialog shows each template as text, and its keyboard focus is on the first", async () => {
  const { run } = added();
  await run(Commands.newFromTemplate);
  const { body, focusNodeSelector } = (showDialog.mock.calls as [[Shown & { focusNodeSelector: string }]])[0][0];
  const labels = [...body.node.querySelectorAll("label")];
  expect(labels.map((label) => label.querySelector("strong")?.textContent)).toEqual(["Image classifier", "Plain DDP"]);
  expect(body.node.querySelector<HTMLInputElement>(focusNodeSelector)?.value).toBe("image-classifier");
  labels[1]?.querySelector("input")?.click();
  expect(body.getValue()).toBe("plain-ddp");
});

test("markup in a title is shown as text", () => {
  const { node } = new TemplateChooser([{ name: "x", title: "<img src=x>", description: "<b>bold</b>" }]);
  expect(node.querySelector("img, b")).toBeNull();
  expect(node.textContent).toBe("<img src=x><b>bold</b>");
});

test("a cancelled dialog creates nothing", async () => {
  showDialog.mockResolvedValue({ button: { accept: false }, value: "image-classifier" });
  const { run, execute, createNotebook, activateById } = added();
  await run(Commands.newFromTemplate);
  for (const mock of [createNotebook, execute, activateById]) expect(mock).not.toHaveBeenCalled();
});

test("the panel shows why the server refused", async () => {
  const createNotebook = () => Promise.reject(new Error("no folder"));
  const { run, execute, activateById } = added({ api: { createNotebook } });
  await run(Commands.newFromTemplate);
  expect(execute).not.toHaveBeenCalled();
  expect(activateById).toHaveBeenCalledWith(PANEL_ID);
});

test.each([true, false])("the dialog about Farandole leads to the templates (%p)", async (accept) => {
  showDialog.mockResolvedValue({ button: { accept } });
  const { run, execute } = added();
  await run(Commands.about);
  expect(execute.mock.calls).toEqual(accept ? [[Commands.newFromTemplate]] : []);
});
