/** A browser of the files in a snapshot. Folders are fetched when the user opens them, part by part. */

import { useRef, useState, type JSX } from "react";

import { bytes, clock, preciseClock } from "../../format";
import { pathIn } from "../../state/snapshots";
import type { Now, Snapshot, SnapshotEntry } from "../../wire";
import { usePanelContext } from "../context";
import { Empty } from "../parts";
import { useVirtualRows } from "../runs/virtualRows";
import { Failure } from "./list";
import { Actions, type ChosenFile } from "./actions";
import { useFolder } from "./useFolder";
import type { Restore } from "./useRestore";

export const ROW = 48;

interface Props {
  snapshot: Snapshot;
  /** The folder that is shown, relative to the home. */
  path: string;
  setPath: (path: string) => void;
  /** Whether the user has just opened the snapshot. */
  focus: boolean;
  back: () => void;
  openVersions: (path: string) => void;
  restore: Restore;
}

export function SnapshotFiles({ snapshot, path, setPath, focus, back, openVersions, restore }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const [selected, setSelected] = useState<SnapshotEntry | null>(null);
  const enter = (folder: string) => {
    setSelected(null);
    setPath(folder);
  };
  const choose = (entry: SnapshotEntry) => {
    if (entry.kind === "folder" && entry.restorable) enter(pathIn(path, entry.name));
    else setSelected(entry);
  };
  return (
    <>
      <div className="fd-row">
        <button type="button" className="fd-link" onClick={back}>
          ‹ {trans.__("All snapshots")}
        </button>
      </div>
      <h3 className="fd-title">
        {[preciseClock(snapshot.time, new Date()), snapshot.message].filter(Boolean).join(" · ")}
      </h3>
      <Crumbs path={path} focus={focus} enter={enter} />
      <FolderList key={path} {...{ snapshot, path, selected, choose }} version={restore.count} />
      <Actions file={fileOf(snapshot, path, selected)} restore={restore} openVersions={openVersions} />
    </>
  );
}

/** Return the selected file, or else the folder that is shown, or null if that is the home. */
function fileOf(snapshot: Snapshot, path: string, selected: SnapshotEntry | null): ChosenFile | null {
  if (selected) return { ...selected, snapshot: snapshot.id, path: pathIn(path, selected.name) };
  return path ? { snapshot: snapshot.id, path, kind: "folder", now: "same", restorable: true } : null;
}

interface CrumbsProps {
  path: string;
  focus: boolean;
  enter: (path: string) => void;
}

/** The folders above the one that is shown. After a change of the folder, its own name has the focus. */
function Crumbs({ path, focus, enter }: CrumbsProps): JSX.Element {
  const { trans } = usePanelContext();
  const names = path ? path.split("/") : [];
  const below = names.map((name, n) => ({ folder: names.slice(0, n + 1).join("/"), name }));
  return (
    <nav className="fd-crumbs" aria-label={trans.__("Folder")}>
      {[{ folder: "", name: trans.__("Home") }, ...below].map(({ folder, name }) => (
        <button
          key={folder}
          type="button"
          className="fd-link"
          autoFocus={focus && folder === path}
          aria-current={folder === path ? "location" : undefined}
          onClick={() => enter(folder)}
        >
          {name}
        </button>
      ))}
    </nav>
  );
}

interface ListProps {
  snapshot: Snapshot;
  path: string;
  selected: SnapshotEntry | null;
  choose: (entry: SnapshotEntry) => void;
  version: number;
}

function FolderList({ snapshot, path, selected, choose, version }: ListProps): JSX.Element {
  const { trans } = usePanelContext();
  const box = useRef<HTMLDivElement>(null);
  const [total, setTotal] = useState<number | null>(null);
  const size = { rowHeight: ROW, total: total ?? 0 };
  const { first, last, active, rendered, setActive, ...handlers } = useVirtualRows(box, size);
  const { at, failure, retry } = useFolder({ id: snapshot.id, path, first, last, total, setTotal, version });
  return (
    <>
      {failure && <Failure failure={failure} retry={retry} />}
      {total === null && !failure && <Empty title={trans.__("Loading…")} />}
      {total === 0 && <Empty title={trans.__("This folder is empty")} />}
      <div ref={box} className="fd-runs" hidden={!total} {...handlers}>
        <ul aria-label={trans.__("Files")} style={{ height: (total ?? 0) * ROW }}>
          {rendered.map((row) => (
            <li
              key={row}
              className="fd-run"
              aria-setsize={total ?? 0}
              aria-posinset={row + 1}
              style={{ top: row * ROW, height: ROW }}
              onFocus={() => setActive(row)}
            >
              <Row entry={at(row)} {...{ row, selected, choose }} active={row === active} />
            </li>
          ))}
        </ul>
      </div>
    </>
  );
}

interface RowProps {
  entry: SnapshotEntry | null;
  row: number;
  active: boolean;
  selected: SnapshotEntry | null;
  choose: (entry: SnapshotEntry) => void;
}

/** A row of the folder. Its button is rendered before the entry is fetched, so that the arrow keys can reach the row. */
function Row({ entry, row, active, selected, choose }: RowProps): JSX.Element {
  const { trans } = usePanelContext();
  const isFolder = entry?.kind === "folder";
  return (
    <button
      type="button"
      className="fd-run-open"
      data-row={row}
      aria-disabled={!entry}
      aria-pressed={entry && !isFolder ? selected?.name === entry.name : undefined}
      tabIndex={active ? 0 : -1}
      onClick={() => entry && choose(entry)}
    >
      {entry ? (
        <>
          <span className="fd-run-title" title={entry.name}>
            {isFolder ? `${entry.name}/` : entry.name}
          </span>
          <NowMark now={entry.now} />
          <span className="fd-run-facts">
            {[entry.kind === "file" ? bytes(entry.size) : null, clock(entry.modified, new Date())]
              .filter(Boolean)
              .join(" · ")}
          </span>
        </>
      ) : (
        <span className="fd-run-facts">{trans.__("Loading…")}</span>
      )}
    </button>
  );
}

/** Whether the file in the home differs from the one in the snapshot. */
export function NowMark({ now }: { now: Now }): JSX.Element | null {
  const { trans } = usePanelContext();
  if (now === "same") return null;
  const words = {
    missing: trans.__("deleted since"),
    newer: trans.__("changed since"),
    different: trans.__("differs now"),
  };
  return <span className="fd-now">{words[now]}</span>;
}
