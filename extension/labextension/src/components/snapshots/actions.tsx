/** The buttons that restore a file of a snapshot. */

import type { JSX } from "react";

import { basename } from "../../format";
import { usePanelContext } from "../context";
import { Note } from "../parts";
import type { Restore, StoredFile } from "./useRestore";

/** The file or folder that the user has chosen. */
export interface ChosenFile extends StoredFile {
  /** Whether it can be restored by itself. */
  readonly restorable: boolean;
}

interface Props {
  file: ChosenFile | null;
  restore: Restore;
  openVersions: (path: string) => void;
}

export function Actions({ file, restore, openVersions }: Props): JSX.Element {
  const { trans } = usePanelContext();
  if (!file) {
    return (
      <>
        <p className="fd-muted">{trans.__("Choose a file to restore it, or open a folder.")}</p>
        <RestoreStatus restore={restore} />
      </>
    );
  }
  const name = basename(file.path);
  return (
    <div className="fd-restore" role="group" aria-label={trans.__("Restore %1", name)}>
      <strong className="fd-run-title">{name}</strong>
      {file.restorable ? (
        <div className="fd-row">
          <RestoreButtons file={file} name={name} restore={restore} />
          <button
            type="button"
            aria-label={trans.__("Earlier versions of %1", name)}
            onClick={() => openVersions(file.path)}
          >
            {trans.__("Earlier versions")}
          </button>
        </div>
      ) : (
        <Note>
          {trans.__("This name is not valid in UTF-8, so the file cannot be restored by itself. Restore its folder.")}
        </Note>
      )}
      <RestoreStatus restore={restore} />
    </div>
  );
}

interface ButtonProps {
  file: StoredFile;
  /** What is restored, for the accessible names of the buttons. */
  name: string;
  restore: Restore;
}

export function RestoreButtons({ file, name, restore }: ButtonProps): JSX.Element {
  const { trans } = usePanelContext();
  // A disabled button would lose the focus, so the buttons stay enabled meanwhile.
  return (
    <>
      <button
        type="button"
        className="fd-main"
        aria-disabled={restore.busy}
        aria-label={trans.__("Restore %1", name)}
        onClick={() => !restore.busy && void restore.toPlace(file)}
      >
        {trans.__("Restore")}
      </button>
      <button
        type="button"
        aria-disabled={restore.busy}
        aria-label={trans.__("Restore %1 to…", name)}
        onClick={() => !restore.busy && void restore.toFolder(file)}
      >
        {trans.__("Restore to…")}
      </button>
    </>
  );
}

/** What has become of the last restore. */
export function RestoreStatus({ restore: { busy, restored } }: { restore: Restore }): JSX.Element {
  const { trans } = usePanelContext();
  return (
    <p className="fd-muted fd-restore-status" role="status">
      {busy && trans.__("Restoring…")}
      {restored !== null && trans.__("Restored: %1", restored)}
    </p>
  );
}
