/** Fetches a folder of a snapshot part by part while the user scrolls. */

import { useEffect, useRef, useState } from "react";

import { outcomeOf } from "../../net/requestError";
import { offsetsOf, PAGE } from "../../state/pages";
import type { SnapshotEntry } from "../../wire";
import { usePanelContext } from "../context";

interface Wanted {
  id: string;
  path: string;
  first: number;
  last: number;
  /** The number of entries, or null until it is known. */
  total: number | null;
  setTotal: (total: number) => void;
  /** If this number changes, the entries are fetched again. */
  version: number;
}

interface Folder {
  readonly failure: Error | null;
  readonly retry: () => void;
  /** Return the entry in a row, or null until it is fetched. */
  readonly at: (row: number) => SnapshotEntry | null;
}

/** Return the entries of a folder, and fetch those in the rows from `first` to `last`. */
export function useFolder({ id, path, first, last, total, setTotal, version }: Wanted): Folder {
  const { model } = usePanelContext();
  const [pages, setPages] = useState<ReadonlyMap<number, readonly SnapshotEntry[]>>(new Map());
  const [failures, setFailures] = useState<ReadonlyMap<number, Error>>(new Map());
  const [tries, setTries] = useState(0);
  const requested = useRef(new Set<string>());
  useEffect(() => {
    for (const offset of offsetsOf(first, total === null ? 1 : Math.min(last, total))) {
      const key = `${offset} ${version} ${tries}`;
      if (requested.current.has(key)) continue;
      requested.current.add(key);
      void outcomeOf(model.api.snapshotFiles(id, path, offset, PAGE)).then((found) => {
        setFailures((before) => {
          const others = [...before].filter(([one]) => one !== offset);
          return new Map(found instanceof Error ? [...others, [offset, found]] : others);
        });
        if (found instanceof Error) return;
        setTotal(found.total);
        setPages((before) => new Map([...before, [offset, found.entries]]));
      });
    }
  }, [model, id, path, first, last, total, setTotal, version, tries]);
  const at = (row: number) => pages.get(Math.floor(row / PAGE) * PAGE)?.[row % PAGE] ?? null;
  const [failure = null] = failures.values();
  const retry = () => {
    setFailures(new Map());
    setTries(tries + 1);
  };
  return { failure, retry, at };
}
