/**
 * Runs the saves of each notebook one after the other, and marks a notebook that changed during a save as unsaved.
 *
 * Farandole sets a short interval of automatic saves, because output that is not saved is lost when the page is reloaded.
 * JupyterLab starts the next automatic save even if the previous one is not complete. The second save then detects that the
 * file has changed on disk, and asks the user which version to keep. After a save, JupyterLab marks the notebook as saved,
 * even if it changed during the save, so the next automatic save would skip the change.
 */

import type { INotebookTracker } from "@jupyterlab/notebook";
import type { ISignal } from "@lumino/signaling";

/** The part of a document's context that saves the document. */
interface Saved {
  readonly model: { dirty: boolean; readonly contentChanged: ISignal<unknown, void> };
  save(): Promise<void>;
}

/** Let the saves of all notebooks that are opened from now on wait for each other. */
export function saveInTurn(tracker: INotebookTracker): void {
  tracker.widgetAdded.connect((_, panel) => queueSaves(panel.context));
}

/** Replace the method that saves a document by one that first waits for the end of earlier saves, whatever their result. */
export function queueSaves(context: Saved): void {
  const save = context.save.bind(context);
  let last: Promise<void> = Promise.resolve();
  let changes = 0;
  context.model.contentChanged.connect(() => {
    changes += 1;
  });
  const saveAll = async () => {
    const before = changes;
    await save();
    if (changes > before) context.model.dirty = true;
  };
  context.save = () => {
    last = last.catch(() => undefined).then(saveAll);
    return last;
  };
}
