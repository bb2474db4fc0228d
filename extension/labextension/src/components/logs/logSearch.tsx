/** The search in the logs of a run. Enter shows the next match, and Shift+Enter the previous one. */

import { useEffect, useState, type JSX, type KeyboardEvent } from "react";

import { preciseClock } from "../../format";
import { useDebounced } from "../../hooks";
import type { IPanelModel } from "../../state/model";
import type { LogMatch, LogMatches } from "../../wire";
import { usePanelContext } from "../context";

const PAUSE = 300;

interface Props {
  id: string;
  rank: number;
  /** Whether the run has several ranks. */
  several: boolean;
  show: (match: LogMatch, text: string) => void;
}

export function LogSearch({ id, rank, several, show }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const [text, setText] = useState("");
  const [everywhere, setEverywhere] = useState(true);
  const wanted = useDebounced(text, PAUSE);
  const { found, at, go } = useMatches(id, wanted, everywhere ? "" : String(rank), show);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    go(event.shiftKey ? -1 : 1);
  };
  return (
    <div role="search" className="fd-row">
      <input
        type="search"
        value={text}
        maxLength={500}
        placeholder={trans.__("Search")}
        aria-label={trans.__("Search in the log")}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={onKeyDown}
      />
      {several && (
        <label>
          <input type="checkbox" checked={everywhere} onChange={(event) => setEverywhere(event.target.checked)} />
          {trans.__("all ranks")}
        </label>
      )}
      <button type="button" className="fd-small" disabled={!found?.matches.length} onClick={() => go(-1)}>
        {trans.__("Previous")}
      </button>
      <button type="button" className="fd-small" disabled={!found?.matches.length} onClick={() => go(1)}>
        {trans.__("Next")}
      </button>
      <span className="fd-muted" role="status">
        {found && <Place found={found} at={at} />}
      </span>
    </div>
  );
}

/** Return the matches of a text, the index of the current match, and a function that moves it and shows the match. */
function useMatches(id: string, text: string, ranks: string, show: Props["show"]) {
  const { model } = usePanelContext();
  const [found, setFound] = useState<LogMatches | null>(null);
  const [at, setAt] = useState(0);
  useEffect(() => {
    setFound(null);
    if (!text.trim()) return undefined;
    const search = new AbortController();
    void model
      .attempt(() => searchLogs(model, id, text, ranks, search.signal))
      .then((answer) => {
        if (search.signal.aborted || !answer) return;
        setFound(answer);
        setAt(0);
        if (answer.matches[0]) show(answer.matches[0], text);
      });
    // The server would otherwise search on for a text that nobody looks for any more.
    return () => search.abort();
  }, [model, id, text, ranks, show]);
  const go = (step: number) => {
    const count = found?.matches.length ?? 0;
    const next = (at + step + count) % count;
    const match = found?.matches[next];
    if (!match) return;
    setAt(next);
    show(match, text);
  };
  return { found, at, go };
}

/** Search the logs. Return null if the page has ended the search. */
async function searchLogs({ api }: IPanelModel, id: string, text: string, ranks: string, signal: AbortSignal) {
  try {
    return await api.searchLogs(id, text, ranks, signal);
  } catch (error) {
    if (signal.aborted) return null;
    throw error;
  }
}

function Place({ found: { matches, complete }, at }: { found: LogMatches; at: number }): JSX.Element {
  const { trans } = usePanelContext();
  const match = matches[at];
  if (!match) return <>{complete ? trans.__("No matches") : trans.__("No matches in the part that was searched")}</>;
  const parts = [
    trans.__("Match %1 of %2", at + 1, complete ? matches.length : `${matches.length}+`),
    trans.__("rank %1, line %2", match.rank, match.line),
    match.time === null ? null : preciseClock(match.time, new Date()),
  ];
  return <>{parts.filter(Boolean).join(" · ")}</>;
}
