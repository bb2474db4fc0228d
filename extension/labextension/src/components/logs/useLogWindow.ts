import { useCallback, useRef, useState } from "react";

import { logOf, prepend } from "../../state/logRows";
import { append, logKey, TAIL, type Log } from "../../state/logs";
import { usePanelContext, usePanelState, useSubscription } from "../context";

/** How many bytes before a match are shown. */
const BEFORE = 20_000;
const PART = 100_000;

/** The part of a log that the page keeps, and the functions that move it. */
export interface LogWindow {
  readonly log: Log | undefined;
  /** Whether the window follows the end of the log. */
  readonly follow: boolean;
  /** The byte of the log to which the user has jumped, or null. The object is a new one for each jump. */
  readonly target: { readonly offset: number } | null;
  readonly jump: (rank: number, offset: number) => Promise<void>;
  readonly toEnd: () => void;
  /** Stop following the end. */
  readonly stay: () => void;
  readonly loadEarlier: () => Promise<void>;
  readonly loadLater: () => Promise<void>;
}

/** Return a window on the log of a rank. At first it follows the end of the log. */
export function useLogWindow(id: string, rank: number): LogWindow {
  const { model } = usePanelContext();
  const name = { run: id, rank, worker: null };
  const streamed = usePanelState().logs[logKey(name)];
  const [kept, setKept] = useState<Log | null>(null);
  const [target, setTarget] = useState<LogWindow["target"]>(null);
  const requests = useRef(0);
  const loading = useRef(false);
  useSubscription({ logs: kept ? [] : [{ ...name, offset: TAIL }] });

  /** Fetch a part. Return null if the window has moved in the meantime. */
  const fetch = useCallback(
    async (of: number, offset: number, limit = PART) => {
      const request = ++requests.current;
      loading.current = true;
      const part = await model.attempt(() => model.api.log(id, of, offset, limit));
      if (request !== requests.current) return null;
      loading.current = false;
      return part;
    },
    [model, id],
  );
  const jump = useCallback(
    async (of: number, offset: number) => {
      const part = await fetch(of, Math.max(0, offset - BEFORE));
      if (!part) return;
      setKept(logOf(part));
      setTarget({ offset });
    },
    [fetch],
  );
  const toEnd = useCallback(() => {
    requests.current += 1;
    loading.current = false;
    setKept(null);
    setTarget(null);
  }, []);
  const loadEarlier = async () => {
    if (!kept?.offset || loading.current) return;
    const offset = Math.max(0, kept.offset - PART);
    const part = await fetch(rank, offset, kept.offset - offset);
    if (part) setKept(prepend(kept, part));
  };
  const loadLater = async () => {
    if (!kept || kept.next >= kept.size || loading.current) return;
    const part = await fetch(rank, kept.next);
    if (part) setKept(append(kept, part));
  };
  const stay = () => setKept(streamed ?? null);
  return { log: kept ?? streamed, follow: !kept, target, jump, toEnd, stay, loadEarlier, loadLater };
}
