/** Shows a label on each cell that has an active run. The label is shown again after the page is reloaded. */

import type { Cell } from "@jupyterlab/cells";
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";

import { title } from "../format";
import { openedIn } from "../notebooks/actions";
import { runningCells } from "../notebooks/cells";
import type { IPanelModel } from "../state/model";
import type { RunSummary } from "../wire";

const MARK = "fd-cell-mark";

/** Label the cells with active runs in all open notebooks, now and after each change of the runs or the cells. */
export function markCells(tracker: INotebookTracker, model: IPanelModel): void {
  const mark = (panel: NotebookPanel) => {
    if (panel.isDisposed) return;
    const running = runningCells(model.state.runs ?? [], openedIn(panel));
    for (const cell of panel.content.widgets) markCell(cell, running.get(cell.model.id), model);
  };
  tracker.widgetAdded.connect((_, panel) => {
    const update = () => mark(panel);
    panel.sessionContext.kernelChanged.connect(update);
    void panel.context.ready.then(() => {
      update();
      // When a cell is moved, the model emits this signal before the notebook replaces the widget of the cell.
      panel.content.model?.cells.changed.connect(() => requestAnimationFrame(update));
    });
  });
  let runs = model.state.runs;
  model.changed.connect(() => {
    if (model.state.runs === runs) return;
    runs = model.state.runs;
    tracker.forEach(mark);
  });
}

function markCell(cell: Cell, run: RunSummary | undefined, model: IPanelModel): void {
  const old = cell.node.querySelector<HTMLElement>(`:scope > .${MARK}`);
  if (old && run && old.dataset["run"] === run.id) return;
  old?.remove();
  if (!run) return;
  const mark = document.createElement("button");
  mark.type = "button";
  mark.className = MARK;
  mark.dataset["run"] = run.id;
  mark.textContent = model.trans.__("running");
  mark.title = model.trans.__("running: %1 (open it in the panel)", title(run));
  mark.setAttribute("aria-label", mark.title);
  mark.addEventListener("click", () => model.navigate({ show: "run", run: run.id }));
  cell.node.append(mark);
}
