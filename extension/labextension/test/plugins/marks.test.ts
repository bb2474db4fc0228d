/** Tests of the labels on cells with active runs. */

import type { Cell } from "@jupyterlab/cells";
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import { Signal } from "@lumino/signaling";

import { ENGLISH } from "../../src/i18n";
import { markCells } from "../../src/plugins/marks";
import type { IPanelModel } from "../../src/state/model";
import { EMPTY, reduce, type PanelState } from "../../src/state/reducer";
import type * as wire from "../../src/wire";
import { example } from "../examples";

jest.mock("@jupyterlab/notebook", () => ({}));
jest.mock("@jupyterlab/coreutils", () => ({}));

const runs = example<wire.RunsMessage>("runs");
const run = runs.runs[0] as wire.RunSummary;
function cell(id: string): Cell {
  return { node: document.createElement("div"), model: { id } } as unknown as Cell;
}

/** A page with one open notebook. `receive` delivers a message from the server to the page. */
class Page {
  readonly cells = [cell(run.cell), cell("other")];
  readonly navigate = jest.fn();
  private readonly owner = {};
  private readonly changed = new Signal<object, void>(this.owner);
  private readonly added = new Signal<object, NotebookPanel>(this.owner);
  readonly moved = new Signal<object, void>(this.owner);
  private state: PanelState = EMPTY;

  readonly kernelChanged = new Signal<object, void>(this.owner);
  readonly sessionContext = { session: { kernel: { id: "" } }, kernelChanged: this.kernelChanged };

  constructor(path: string) {
    const panel = {
      isDisposed: false,
      context: { localPath: path, ready: Promise.resolve() },
      sessionContext: this.sessionContext,
      content: { widgets: this.cells, model: { cells: { changed: this.moved } } },
    } as unknown as NotebookPanel;
    const tracker = {
      widgetAdded: this.added,
      forEach: (mark: (one: NotebookPanel) => void) => mark(panel),
    } as unknown as INotebookTracker;
    const page = { navigate: this.navigate, changed: this.changed, trans: ENGLISH };
    const model = Object.defineProperty(page, "state", { get: () => this.state }) as unknown as IPanelModel;
    markCells(tracker, model);
    this.added.emit(panel);
  }

  receive(message: wire.Message): void {
    this.state = reduce(this.state, message, 0);
    this.changed.emit();
  }

  marks(): (string | null)[] {
    return this.cells.map(({ node }) => node.querySelector("button")?.getAttribute("aria-label") ?? null);
  }
}

const MARKED = ["running: first-cnn (open it in the panel)", null];

test("the cell of an active run is marked until the run ends", () => {
  const page = new Page("work/digits.ipynb");
  page.receive(runs);
  expect(page.marks()).toEqual(MARKED);
  page.receive(runs);
  expect(page.cells[0]?.node.querySelectorAll("button")).toHaveLength(1);
  page.receive({ ...runs, runs: [{ ...run, status: "finished", goes_on: false }] });
  expect(page.marks()).toEqual([null, null]);
});

test("the mark opens the run in the panel", () => {
  const page = new Page("work/digits.ipynb");
  page.receive(runs);
  page.cells[0]?.node.querySelector("button")?.click();
  expect(page.navigate).toHaveBeenCalledWith({ show: "run", run: run.id });
});

test("a cell with a new widget is marked again", async () => {
  const page = new Page("work/digits.ipynb");
  page.receive(runs);
  await Promise.resolve();
  page.cells[0] = cell(run.cell);
  page.moved.emit();
  await new Promise(requestAnimationFrame);
  expect(page.marks()).toEqual(MARKED);
});

test("a renamed notebook is recognised by its kernel", () => {
  const page = new Page("renamed.ipynb");
  page.receive(runs);
  expect(page.marks()).toEqual([null, null]);
  page.sessionContext.session.kernel.id = run.kernel;
  page.kernelChanged.emit();
  expect(page.marks()).toEqual(MARKED);
});

test("the same cell in a copy of the notebook is not marked", () => {
  const page = new Page("work/copy.ipynb");
  page.receive(runs);
  expect(page.marks()).toEqual([null, null]);
});
