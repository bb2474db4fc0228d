/** The versions of a file or folder: the snapshots that have it, and in which of them it changed. */

import { useEffect, useState, type JSX } from "react";

import { basename, bytes, clock, preciseClock } from "../../format";
import type { FilePlace } from "../../net/api";
import { outcomeOf } from "../../net/requestError";
import type { SnapshotVersion, SnapshotVersions } from "../../wire";
import { usePanelContext } from "../context";
import { Empty } from "../parts";
import { RestoreButtons, RestoreStatus } from "./actions";
import { NowMark } from "./files";
import { Failure } from "./list";
import type { Restore } from "./useRestore";

interface Props {
  of: FilePlace;
  /** Whether the user has just opened the list in this tab. */
  focus: boolean;
  back: () => void;
  restore: Restore;
}

export function FileVersions({ of, focus, back, restore }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const { found, failure, retry } = useVersions(of, restore.count);
  return (
    <>
      <div className="fd-row">
        <button type="button" className="fd-link" autoFocus={focus} onClick={back}>
          ‹ {trans.__("Back")}
        </button>
      </div>
      {failure && <Failure failure={failure} retry={retry} />}
      {!found && !failure && <Empty title={trans.__("Looking into all snapshots…")} />}
      {found && (
        <>
          <h3 className="fd-title" title={found.path}>
            {trans.__("Versions of %1", basename(found.path))}
          </h3>
          <RestoreStatus restore={restore} />
          <VersionList found={found} restore={restore} />
        </>
      )}
    </>
  );
}

function useVersions(of: FilePlace, version: number) {
  const { model } = usePanelContext();
  const [found, setFound] = useState<SnapshotVersions | null>(null);
  const [failure, setFailure] = useState<Error | null>(null);
  const [tries, setTries] = useState(0);
  // The user may ask for the versions of the same file again, after a change.
  useEffect(() => {
    let current = true;
    setFailure(null);
    void outcomeOf(model.api.fileVersions(of)).then((outcome) => {
      if (!current) return;
      if (outcome instanceof Error) setFailure(outcome);
      else setFound(outcome);
    });
    return () => {
      current = false;
    };
  }, [model, of, version, tries]);
  return { found, failure, retry: () => setTries(tries + 1) };
}

function VersionList({ found, restore }: { found: SnapshotVersions; restore: Restore }): JSX.Element {
  const { trans } = usePanelContext();
  const [all, setAll] = useState(false);
  const { path, versions, total } = found;
  if (!versions.length) {
    return (
      <Empty title={trans.__("No snapshot has it")}>
        <p>{trans.__("It may be newer than the newest snapshot, or be left out of snapshots.")}</p>
      </Empty>
    );
  }
  const shown = all ? versions : versions.filter(({ changed }) => changed);
  const rest = total - versions.length;
  return (
    <>
      {versions.some(({ changed }) => !changed) && (
        <label className="fd-check">
          <input type="checkbox" checked={all} onChange={(event) => setAll(event.target.checked)} />
          {trans.__("Show all %1 snapshots that have it", versions.length)}
        </label>
      )}
      <ul className="fd-versions" aria-label={trans.__("Versions of %1", basename(path))}>
        {shown.map((version) => (
          <Version key={version.id} version={version} path={path} restore={restore} />
        ))}
      </ul>
      {rest > 0 && <p className="fd-muted">{trans.__("%1 older snapshots are not shown.", rest)}</p>}
    </>
  );
}

interface VersionProps {
  version: SnapshotVersion;
  path: string;
  restore: Restore;
}

function Version({ version, path, restore }: VersionProps): JSX.Element {
  const { trans } = usePanelContext();
  const now = new Date();
  const taken = preciseClock(version.time, now);
  const facts = [
    version.kind === "file" && bytes(version.size),
    version.changed ? trans.__("changed %1", clock(version.modified, now)) : trans.__("as before"),
  ];
  const file = { snapshot: version.id, path, kind: version.kind, now: version.now };
  return (
    <li className="fd-version">
      <div className="fd-row">
        <strong>{taken}</strong>
        <NowMark now={version.now} />
      </div>
      {version.message && <div>{version.message}</div>}
      <div className="fd-muted">{facts.filter(Boolean).join(" · ")}</div>
      <div className="fd-row">
        <RestoreButtons file={file} name={trans.__("%1 of %2", basename(path), taken)} restore={restore} />
      </div>
    </li>
  );
}
