/** Inserts cells into notebooks and opens notebooks at a cell. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { PageConfig } from "@jupyterlab/coreutils";
import { NotebookActions, NotebookPanel, type INotebookTracker } from "@jupyterlab/notebook";

import type { OpenNotebook, Origin } from "./cells";

/**
 * Return the current notebook, or a new one if there is none.
 *
 * Return null on a page of Notebook 7 that has no notebook, because a new notebook would open on another page, where
 * this page could not insert cells.
 */
export async function currentNotebook(
  app: JupyterFrontEnd,
  tracker: INotebookTracker | null,
): Promise<NotebookPanel | null> {
  const one = tracker?.currentWidget;
  if (!one && PageConfig.getOption("notebookPage")) return null;
  const current: unknown = one ?? (await app.commands.execute("notebook:create-new", { kernelName: "python3" }));
  if (!(current instanceof NotebookPanel)) return null;
  // Cells that are inserted before the notebook is loaded would be lost.
  await current.context.ready;
  await current.revealed;
  return current;
}

/** Return the path and the kernel's id of an open notebook, to compare them with the origins of runs and clusters. */
export function openedIn({ context, sessionContext }: NotebookPanel): OpenNotebook {
  return { path: context.localPath, kernel: sessionContext.session?.kernel?.id ?? "" };
}

/** Return the source of each code cell in a notebook. */
export function sourcesOf({ content }: NotebookPanel): string[] {
  const code = content.widgets.filter(({ model }) => model.type === "code");
  return code.map(({ model }) => model.sharedModel.getSource());
}

/**
 * Insert code cells below the active cell, or into it if it is an empty code cell.
 *
 * The first inserted cell becomes active and has the focus, so that Shift+Enter runs the inserted cells in their order.
 */
export function insertCells({ content: notebook }: NotebookPanel, sources: readonly string[]): void {
  let first: number | null = null;
  for (const source of sources) {
    const active = notebook.activeCell?.model;
    if (active?.type !== "code" || active.sharedModel.getSource().trim()) NotebookActions.insertBelow(notebook);
    notebook.activeCell?.model.sharedModel.setSource(source);
    first ??= notebook.activeCellIndex;
  }
  if (first !== null) notebook.activeCellIndex = first;
  notebook.deselectAll();
  // Take the focus from the button in the panel.
  notebook.activate();
  if (notebook.activeCell) void notebook.scrollToCell(notebook.activeCell);
}

/** Open the notebook that an origin names. If `cell` is not empty, scroll to the cell with this id. */
export async function openAt(app: JupyterFrontEnd, { notebook, kernel }: Origin, cell: string): Promise<void> {
  // If the notebook was renamed, the kernel's session has its new path. Only sessions of notebooks are considered,
  // because a console may use the same kernel.
  const notebooks = [...app.serviceManager.sessions.running()].filter(({ type }) => type === "notebook");
  const session = notebooks.find((one) => kernel && one.kernel?.id === kernel);
  const opened: unknown = await app.commands.execute("docmanager:open", { path: session?.path ?? notebook });
  if (!(opened instanceof NotebookPanel) || !cell) return;
  await opened.context.ready;
  const index = opened.content.widgets.findIndex((widget) => widget.model.id === cell);
  if (index < 0) return;
  opened.content.activeCellIndex = index;
  await opened.content.scrollToItem(index, "smart");
}
