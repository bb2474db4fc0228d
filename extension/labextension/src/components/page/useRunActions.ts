/** The actions on runs in the table: to change what the user has written about a run, and to delete runs. */

import { bytes, title } from "../../format";
import { RequestError } from "../../net/requestError";
import type { RunRow, RunTexts } from "../../wire";
import { usePanelContext } from "../context";

/** The dialog names at most this many runs, and then says how many more there are. */
const NAMED = 10;

/** What the user has written about a run. */
export interface Texts {
  readonly name: string;
  readonly tags: readonly string[];
  readonly notes: string;
}

/** Whether a change was saved. If it was not because the text was changed elsewhere, these are the present texts. */
export type Saved = boolean | Texts;

export interface RunActions {
  /** Return the whole texts of a run, of which a row may have only the beginning, or null if they cannot be read. */
  texts(run: RunRow): Promise<Texts | null>;
  /** Save a change of texts that the user has seen as `before`. */
  edit(run: RunRow, edit: Partial<RunTexts>, before: Partial<RunTexts>): Promise<Saved>;
  /** Open the notebook of a run at the cell that has started the run. */
  openNotebook(run: RunRow): Promise<void>;
  /** Delete runs after the user has confirmed it. */
  remove(runs: readonly RunRow[]): Promise<void>;
}

/** Return the actions. After each change, `changed` is called with the ids of the runs that were deleted. */
export function useRunActions(changed: (deleted: readonly string[]) => void): RunActions {
  const { model, trans, confirm, ...context } = usePanelContext();
  const detail = ({ id }: RunRow) => model.attempt(() => model.api.run(id));
  const texts = async (run: RunRow): Promise<Texts | null> => {
    const whole = await detail(run);
    return whole && { name: whole.summary.name, tags: whole.tags, notes: whole.notes };
  };
  const openNotebook = async (run: RunRow) => {
    const whole = isShortened(run.notebook) ? (await detail(run))?.summary : run;
    if (whole) context.openNotebook(whole, whole.cell);
  };
  const edit = async (run: RunRow, change: Partial<RunTexts>, before: Partial<RunTexts>): Promise<Saved> => {
    const codes: string[] = [];
    const saved = await model.attempt(() =>
      model.api.editRun(run.id, change, before).catch((error: unknown) => {
        if (error instanceof RequestError) codes.push(error.problem.code);
        throw error;
      }),
    );
    const conflict = codes.includes("changed");
    if (saved || conflict) changed([]);
    return saved !== null || (conflict && ((await texts(run)) ?? false));
  };
  const question = (runs: readonly RunRow[]) => {
    const named = runs.slice(0, NAMED).map((run) => `${title(run)} (${run.id}, ${bytes(run.bytes)})`);
    const more = runs.length - NAMED;
    const rest = more > 0 ? [trans._n("… %1 more", "… %1 more", more)] : [];
    return [...named, ...rest, "", trans.__("Their reports, logs and checkpoints are lost.")].join("\n");
  };
  const remove = async (runs: readonly RunRow[]) => {
    const heading = trans._n("Delete %1 run?", "Delete %1 runs?", runs.length);
    if (!(await confirm(heading, question(runs), trans.__("Delete")))) return;
    const deleted: string[] = [];
    for (const { id } of runs) if (await model.attempt(() => model.api.deleteRun(id))) deleted.push(id);
    changed(deleted);
  };
  return { texts, edit, openNotebook, remove };
}

/** Return whether a text of a row may be only the beginning of the whole text. */
export function isShortened(text: string): boolean {
  return text.endsWith("…");
}

/** Return the tags in a text that separates them with commas, each tag once. */
export function tagsIn(text: string): string[] {
  return [...new Set(text.split(",").map((tag) => tag.trim()))].filter(Boolean);
}
