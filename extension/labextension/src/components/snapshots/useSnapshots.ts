/** Fetches the list of snapshots, and how much has changed in each of them. */

import { useCallback, useEffect, useRef, useState } from "react";

import { outcomeOf } from "../../net/requestError";
import type { KnownSnapshots } from "../../state/snapshots";
import type { SnapshotPage } from "../../wire";
import { usePanelContext } from "../context";

/** So many snapshots are shown at first, and so many more each time that the user asks for older ones. */
export const SHOWN = 100;

export interface SnapshotsState {
  readonly page: SnapshotPage | null;
  readonly failure: Error | null;
  readonly loading: boolean;
  readonly load: () => Promise<void>;
  readonly loadOlder: () => void;
}

/** Return the newest snapshots, which are fetched whenever the panel becomes visible. */
export function useSnapshots(known: KnownSnapshots): SnapshotsState {
  const { model, visible } = usePanelContext();
  const [page, setPage] = useState(known.page);
  const [failure, setFailure] = useState<Error | null>(null);
  const [loading, setLoading] = useState(false);
  const [count, setCount] = useState(Math.max(SHOWN, known.page?.snapshots.length ?? 0));
  const last = useRef(0);
  const load = useCallback(async () => {
    const request = (last.current += 1);
    setLoading(true);
    const found = await outcomeOf(model.api.snapshots(count));
    // The response to an older request may arrive later.
    if (request !== last.current) return;
    setLoading(false);
    setFailure(found instanceof Error ? found : null);
    if (found instanceof Error) return;
    known.page = found;
    setPage(found);
  }, [model, known, count]);
  useEffect(() => {
    if (visible) void load();
  }, [visible, load]);
  return { page, failure, loading, load, loadOlder: () => setCount(count + SHOWN) };
}

/**
 * Fetch how much has changed in these snapshots, one after the other, because the server needs about a second for each.
 *
 * Returns why it is not known if a request has failed. The others are then not requested.
 */
export function useChanges(ids: readonly string[], known: KnownSnapshots): Error | null {
  const { model, visible } = usePanelContext();
  const [failure, setFailure] = useState<Error | null>(null);
  const [, setCount] = useState(0);
  const key = ids.join(" ");
  useEffect(() => {
    let current = visible;
    const fetchAll = async () => {
      for (const id of key.split(" ").filter((one) => one && !known.changes.has(one))) {
        const found = current ? await outcomeOf(model.api.snapshotChanges(id)) : null;
        if (found === null || !current) return;
        setFailure(found instanceof Error ? found : null);
        if (found instanceof Error) return;
        known.changes.set(id, found);
        setCount(known.changes.size);
      }
    };
    void fetchAll();
    return () => {
      current = false;
    };
  }, [model, known, key, visible]);
  return failure;
}
