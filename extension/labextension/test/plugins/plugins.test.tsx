/** Tests of the plugins with simulated objects of JupyterLab. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import { Signal } from "@lumino/signaling";
import type { ReactElement } from "react";

import type { PanelContext } from "../../src/components/context";
import { ENGLISH } from "../../src/i18n";
import { Commands, PANEL_ID } from "../../src/ids";
import { TRAINING_CELL } from "../../src/notebooks/snippets";
import { addCommands } from "../../src/plugins/commands";
import { PanelWidget } from "../../src/plugins/panel";
import { StatusItem } from "../../src/plugins/statusbar";
import type { IPanelModel, NavigationRequest } from "../../src/state/model";
import { EMPTY, reduce, type PanelState } from "../../src/state/reducer";
import type * as wire from "../../src/wire";
import { example, HUB } from "../examples";

jest.mock("@jupyterlab/apputils", () => ({
  Dialog: { cancelButton: () => "cancel", warnButton: () => "warn" },
  showDialog: jest.fn(() => Promise.resolve({ button: { accept: false } })),
  ReactWidget: class {
    readonly node = document.createElement("div");
    readonly title = {};
    addClass = jest.fn();
    update = jest.fn();
    onActivateRequest(): void {
      // The panel overrides this method and calls it.
    }
  },
}));
jest.mock("@jupyterlab/ui-components", () => ({ LabIcon: jest.fn() }));
jest.mock("@jupyterlab/notebook", () => ({
  NotebookPanel: jest.fn(),
  NotebookActions: { insertBelow: (notebook: { insertBelow(): void }) => notebook.insertBelow() },
}));
const { NotebookPanel: Panel } = jest.requireMock<{ NotebookPanel: new () => object }>("@jupyterlab/notebook");

jest.mock("@jupyterlab/coreutils", () => ({ PageConfig: { getOption: jest.fn() } }));
const { getOption } = jest.requireMock<{ PageConfig: { getOption: jest.Mock } }>("@jupyterlab/coreutils").PageConfig;

class Model {
  state: PanelState = EMPTY;
  readonly trans = ENGLISH;
  readonly changed = new Signal<this, void>(this);
  readonly navigation = new Signal<this, NavigationRequest>(this);

  readonly showProblem = jest.fn();

  navigate(request: NavigationRequest): void {
    this.navigation.emit(request);
  }
  receive(...messages: wire.Message[]): void {
    for (const message of messages) this.state = reduce(this.state, message, 0);
    this.changed.emit();
  }
  get it(): IPanelModel {
    return this as unknown as IPanelModel;
  }
}

/** Return the text of the item in the status bar. */
function text(item: StatusItem): string {
  return (item as unknown as { render(): ReactElement<{ children: unknown[] }> }).render().props.children.join("");
}

test("the item in the status bar says that there is no cluster only when the server and the hub have said so", () => {
  const model = new Model();
  const item = new StatusItem(model.it, jest.fn());
  expect(text(item)).toBe("Farandole: not connected");
  model.receive({ kind: "clusters", hub: HUB, clusters: [] });
  expect(text(item)).toBe("Farandole: no cluster");
  model.receive(example<wire.ClustersMessage>("clusters-starting"));
  expect(text(item)).toContain("a cluster is starting");
  model.receive(example<wire.ClustersMessage>("clusters"), example<wire.RunsMessage>("runs"));
  expect(text(item)).toBe("Farandole: 4 ranks · first-cnn +1 · GPU 12.0 GiB");
  model.receive({ kind: "clusters", hub: { ...HUB, error: "the hub does not answer" }, clusters: [] });
  expect(text(item)).toBe("Farandole: not connected · first-cnn +1");
});

test("an activated panel takes the focus, unless one of its elements has it", () => {
  const widget = new PanelWidget({} as unknown as JupyterFrontEnd, new Model().it);
  widget.node.innerHTML = '<button role="tab"></button><button role="tab" aria-selected="true"></button><input />';
  document.body.append(widget.node);
  const activate = () => (widget as unknown as { onActivateRequest(): void }).onActivateRequest();
  activate();
  expect(document.activeElement).toBe(widget.node.children[1]);
  widget.node.querySelector("input")?.focus();
  activate();
  expect(document.activeElement).toBe(widget.node.children[2]);
  widget.node.remove();
});

test("a dialog focuses the button that changes nothing", async () => {
  const widget = new PanelWidget({} as unknown as JupyterFrontEnd, new Model().it);
  const { props } = (widget as unknown as { render(): ReactElement<{ value: PanelContext }> }).render();
  expect(await props.value.confirm("Stop?", "", "Stop")).toBe(false);
  const { showDialog } = jest.requireMock<{ showDialog: jest.Mock }>("@jupyterlab/apputils");
  expect(showDialog).toHaveBeenCalledWith(expect.objectContaining({ buttons: ["cancel", "warn"], defaultButton: 0 }));
});

/** A simulated notebook, which has one empty cell at first. */
class Notebook {
  readonly sources = [""];
  activeCellIndex = 0;
  readonly activate = jest.fn();
  readonly deselectAll = jest.fn();
  readonly scrollToCell = jest.fn();

  get widgets() {
    return this.sources.map((source, n) => {
      const sharedModel = { getSource: () => source, setSource: (text: string) => (this.sources[n] = text) };
      return { model: { type: "code", sharedModel } };
    });
  }
  get activeCell() {
    return this.widgets[this.activeCellIndex];
  }
  insertBelow(): void {
    this.activeCellIndex += 1;
    this.sources.splice(this.activeCellIndex, 0, "");
  }
  in(path: string, kernel = ""): NotebookPanel {
    return Object.assign(new Panel(), {
      content: this,
      sessionContext: { session: { kernel: { id: kernel } } },
      context: { localPath: path, ready: Promise.resolve() },
    }) as unknown as NotebookPanel;
  }
}

interface Command {
  execute(args: object): unknown;
  isEnabled?(): boolean;
}
type Other = (name: string, args: object) => unknown;

const SESSIONS = [
  { type: "console", path: "digits.ipynb-console-1", kernel: { id: "3f1c" } },
  { type: "notebook", path: "renamed.ipynb", kernel: { id: "3f1c" } },
];

/** Return the commands by name, and mocks to inspect. `other` is called in place of JupyterLab's own commands. */
function commandsOf(model: Model, current: NotebookPanel | null, other: Other = () => undefined) {
  const known = new Map<string, Command>();
  const notifyCommandChanged = jest.fn();
  const activateById = jest.fn();
  const commands = {
    addCommand: (name: string, command: Command) => known.set(name, command),
    notifyCommandChanged,
    execute: (name: string, args: object) => Promise.resolve(other(name, args)),
  };
  const serviceManager = { sessions: { running: () => SESSIONS } };
  const app = { commands, serviceManager, shell: { activateById } } as unknown as JupyterFrontEnd;
  const tracker = { currentWidget: current } as unknown as INotebookTracker;
  addCommands(app, model.it, tracker, null);
  const isEnabled = (name: string) => known.get(name)?.isEnabled?.() ?? true;
  const run = (name: string, args = {}) => Promise.resolve(known.get(name)?.execute(args));
  return { run, isEnabled, activateById, notifyCommandChanged };
}

describe("commands", () => {
  test("a training cell comes with the cell that sets up a cluster, in the empty cell and below it", async () => {
    const [model, notebook] = [new Model(), new Notebook()];
    model.receive(example<wire.ClustersMessage>("clusters"));
    await commandsOf(model, notebook.in("new.ipynb")).run(Commands.insertTraining);
    expect(notebook.sources).toEqual(["%load_ext farandole\n%cluster attach exam", TRAINING_CELL]);
  });

  test.each([
    ["", 0],
    ["x = 1", 1],
  ])("Shift+Enter runs the inserted cells in their order, after the cell %p", async (source, first) => {
    const [model, notebook] = [new Model(), new Notebook()];
    notebook.sources[0] = source;
    await commandsOf(model, notebook.in("new.ipynb")).run(Commands.insertTraining);
    expect(notebook.activeCellIndex).toBe(first);
    expect(notebook.activate).toHaveBeenCalled();
    expect(notebook.sources[first]).toContain("%cluster start");
    expect(notebook.sources[first + 1]).toBe(TRAINING_CELL);
  });

  test("a notebook that leads a cluster gets only the training cell", async () => {
    const [model, notebook] = [new Model(), new Notebook()];
    notebook.sources[0] = "x = 1";
    model.receive(example<wire.ClustersMessage>("clusters"));
    await commandsOf(model, notebook.in("work/digits.ipynb")).run(Commands.insertTraining);
    expect(notebook.sources).toEqual(["x = 1", TRAINING_CELL]);
  });

  test("two training cells have one cell that sets up a cluster", async () => {
    const [model, notebook] = [new Model(), new Notebook()];
    const { run } = commandsOf(model, notebook.in("new.ipynb"));
    await run(Commands.insertTraining);
    await run(Commands.insertTraining);
    expect(notebook.sources).toEqual(["%load_ext farandole\n%cluster start --workers 2", TRAINING_CELL, TRAINING_CELL]);
  });

  test.each([
    ["3f1c", "renamed.ipynb"],
    ["gone", "digits.ipynb"],
    ["", "digits.ipynb"],
  ])("the notebook whose kernel is %p is opened by the path %p", async (kernel, path) => {
    const other = jest.fn();
    await commandsOf(new Model(), null, other).run(Commands.openCell, { path: "digits.ipynb", kernel, cell: "c" });
    expect(other).toHaveBeenCalledWith("docmanager:open", { path });
  });

  test("a new notebook is created if none is open", async () => {
    const [model, notebook] = [new Model(), new Notebook()];
    const made = (name: string) => (name === "notebook:create-new" ? notebook.in("Untitled.ipynb") : undefined);
    await commandsOf(model, null, made).run(Commands.insertStart);
    expect(notebook.sources).toEqual(["%load_ext farandole\n%cluster start --workers 2"]);
  });

  test("on a page of Notebook 7 without a notebook, a message says that nothing was inserted", async () => {
    const other = jest.fn();
    getOption.mockReturnValueOnce("tree");
    const model = new Model();
    await commandsOf(model, null, other).run(Commands.insertTraining);
    expect(other).not.toHaveBeenCalled();
    expect(model.showProblem).toHaveBeenCalledWith(expect.stringContaining("Nothing was inserted"));
  });

  test("without a hub the cluster starts on this machine", async () => {
    const [model, notebook] = [new Model(), new Notebook()];
    model.receive({ kind: "clusters", hub: null, clusters: [] });
    await commandsOf(model, notebook.in("a.ipynb")).run(Commands.insertStart);
    expect(notebook.sources).toEqual(["%load_ext farandole\n%cluster start --local --ranks 2"]);
  });

  test("clusters can be started if there is a hub, or may be one", () => {
    const model = new Model();
    const { isEnabled, notifyCommandChanged } = commandsOf(model, null);
    expect(isEnabled(Commands.startCluster)).toBe(true);
    model.receive({ kind: "clusters", hub: null, clusters: [] });
    expect(isEnabled(Commands.startCluster)).toBe(false);
    expect(notifyCommandChanged).toHaveBeenCalledTimes(1);
    model.receive(example<wire.ClustersMessage>("clusters"));
    expect(isEnabled(Commands.startCluster)).toBe(true);
  });

  test("a navigation request shows the panel, also if it is hidden", async () => {
    const model = new Model();
    const { run, activateById } = commandsOf(model, null);
    await run(Commands.startCluster);
    expect(activateById).toHaveBeenCalledWith(PANEL_ID);
  });
});
