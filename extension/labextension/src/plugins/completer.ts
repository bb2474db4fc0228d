/** Completes code in cells that run on the ranks. */

import type { Completer, CompletionHandler, ICompletionContext, ICompletionProvider } from "@jupyterlab/completer";
import { NotebookPanel } from "@jupyterlab/notebook";
import type { KernelMessage } from "@jupyterlab/services";

import { isDistributed, isInMagic, completionCode } from "../notebooks/completion";

/** Adds the imports and variables of distributed cells before the current cell to the kernel's completion. */
export class RankCompleter implements ICompletionProvider {
  readonly identifier = "farandole:ranks";
  readonly rank = 560;
  readonly renderer = null;

  isApplicable({ session, editor }: ICompletionContext): Promise<boolean> {
    const source = editor?.model.sharedModel.getSource() ?? "";
    return Promise.resolve(Boolean(session?.kernel) && isDistributed(source));
  }

  async fetch(
    { text, offset }: CompletionHandler.IRequest,
    { session, editor, widget }: ICompletionContext,
  ): Promise<CompletionHandler.ICompletionItemsReply> {
    const none = { start: offset, end: offset, items: [] };
    const kernel = session?.kernel;
    if (!kernel || isInMagic(text, offset)) return none;
    const request = completionCode(editor ? earlierCells(widget, editor) : [], text, offset);
    const { content } = await kernel.requestComplete({ code: request.code, cursor_pos: request.offset });
    if (content.status !== "ok" || content.cursor_start < request.shift) return none;
    return {
      start: content.cursor_start - request.shift,
      end: content.cursor_end - request.shift,
      items: itemsOf(content),
    };
  }

  /** Return an item with its documentation from the kernel, which JupyterLab shows beside the list of items. */
  async resolve(
    item: CompletionHandler.ICompletionItem,
    { session, editor, widget }: ICompletionContext,
    patch?: Completer.IPatch | null,
  ): Promise<CompletionHandler.ICompletionItem> {
    const kernel = session?.kernel;
    if (!kernel || !editor || !patch) return item;
    const completed = editor.model.sharedModel.getSource().slice(0, patch.start) + patch.value;
    const request = completionCode(earlierCells(widget, editor), completed, Array.from(completed).length);
    const { content } = await kernel.requestInspect({
      code: request.code,
      cursor_pos: request.offset,
      detail_level: 0,
    });
    const found = content.status === "ok" && content.found ? content.data["text/plain"] : undefined;
    return typeof found === "string" ? { ...item, documentation: found } : item;
  }
}

function earlierCells(
  widget: ICompletionContext["widget"],
  editor: NonNullable<ICompletionContext["editor"]>,
): string[] {
  if (!(widget instanceof NotebookPanel)) return [];
  const cells = widget.content.widgets;
  const own = cells.findIndex((cell) => cell.editor === editor);
  return cells.slice(0, Math.max(0, own)).map((cell) => cell.model.sharedModel.getSource());
}

function itemsOf({ matches, metadata }: KernelMessage.ICompleteReplyMsg["content"] & { status: "ok" }) {
  const types = metadata["_jupyter_types_experimental"];
  return matches.map((label, n) => {
    const known: unknown = Array.isArray(types) ? types[n] : null;
    const type = known && typeof known === "object" && "type" in known ? String(known.type) : undefined;
    // JupyterLab passes `patch`, which `resolve` needs, only for items that have `insertText`.
    const item = { label, insertText: label };
    return type === undefined ? item : { ...item, type };
  });
}
