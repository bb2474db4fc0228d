/** Restores files of snapshots. If something is in the way, it asks the user what to do, and overwrites nothing. */

import { useEffect, useState } from "react";

import { basename } from "../../format";
import type { Translator } from "../../i18n";
import { outcomeOf, RequestError } from "../../net/requestError";
import type { Place } from "../../state/snapshots";
import type { EntryKind, Now } from "../../wire";
import { usePanelContext } from "../context";

/** A file or folder of a snapshot. The path is relative to the home. */
export interface StoredFile {
  readonly snapshot: string;
  readonly path: string;
  readonly kind: EntryKind;
  readonly now: Now;
}

export interface Restore {
  readonly busy: boolean;
  /** Where the last file was restored, as the user reads it, or null. */
  readonly restored: string | null;
  /** How many files were restored. What is shown of the home is then out of date. */
  readonly count: number;
  /** Restore a file to its place. */
  toPlace(file: StoredFile): Promise<void>;
  /** Restore a file into a folder that the user names. */
  toFolder(file: StoredFile): Promise<void>;
}

/** Return what restores files. What it says about the last restore is for the view `place` only. */
export function useRestore(place: Place): Restore {
  const { model, trans, choose, ask, refreshFiles } = usePanelContext();
  const [busy, setBusy] = useState(false);
  const [restored, setRestored] = useState<string | null>(null);
  const [count, setCount] = useState(0);
  useEffect(() => setRestored(null), [place]);
  const send = async (file: StoredFile, to: string | null, keepBoth: boolean) => {
    setBusy(true);
    setRestored(null);
    const request = { path: file.path, to, keep_both: keepBoth };
    const outcome = await outcomeOf(model.api.restoreFile(file.snapshot, request));
    setBusy(false);
    if (!(outcome instanceof Error)) {
      setRestored(outcome.path);
      setCount((before) => before + 1);
      refreshFiles();
    } else if (outcome instanceof RequestError && outcome.problem.code === "exists") {
      await decide(file, to, outcome.message);
    } else {
      model.showProblem(outcome.message);
    }
  };
  const toFolder = async (file: StoredFile) => {
    const label = trans.__("Folder in your home. It is created if it does not exist.");
    const to = await ask(trans.__("Restore “%1”", basename(file.path)), label, "restored", trans.__("Restore"));
    if (to !== null) await send(file, to, false);
  };
  /** Ask what to do with a file whose target exists. */
  const decide = async (file: StoredFile, to: string | null, message: string) => {
    const keep = trans.__("“Keep both” restores it under a name with the time of the snapshot.");
    const body = [message, to === null && difference(trans, file), keep].filter(Boolean).join(" ");
    const actions = [trans.__("Restore into folder…"), trans.__("Keep both")];
    const chosen = await choose(trans.__("“%1” exists", basename(file.path)), body, actions);
    if (chosen === 0) await toFolder(file);
    if (chosen === 1) await send(file, to, true);
  };
  return { busy, restored, count, toPlace: (file) => send(file, null, false), toFolder };
}

/** Return how the file in the home differs from the one in the snapshot, or an empty text if it is not known. */
function difference(trans: Translator, { kind, now }: StoredFile): string {
  if (kind === "folder" || now === "missing") return "";
  if (now === "newer") return trans.__("It was changed after the one in the snapshot.");
  if (now === "different") return trans.__("It differs from the one in the snapshot.");
  return trans.__("It has the size and the time of the one in the snapshot.");
}
