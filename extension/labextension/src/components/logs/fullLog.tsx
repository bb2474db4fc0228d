/** The log of a run at full width, with a menu of its ranks, a search, and jumps by time. */

import { useCallback, useEffect, useId, useState, type JSX } from "react";

import { useSessionState } from "../../hooks";
import type { LogMatch } from "../../wire";
import { usePanelContext } from "../context";
import { Note, Select, type Option } from "../parts";
import { LogSearch } from "./logSearch";
import { LogTime } from "./logTime";
import { LogRows } from "./logRows";
import { useLogWindow } from "./useLogWindow";

interface Props {
  id: string;
  ranks: readonly number[];
  /** When the run started, in seconds since the epoch. */
  started: number;
  /** The rank whose log is shown first. */
  rank?: number;
  /** Called with the rank whose log is shown. */
  onRank?: (rank: number) => void;
}

export function FullLog({ id, ranks, started, rank: initial = ranks[0] ?? 0, onRank }: Props): JSX.Element {
  const { model, trans } = usePanelContext();
  const [rank, setRank] = useState(initial);
  const [needle, setNeedle] = useState("");
  const [wrap, setWrap] = useSessionState("log-wrap", "");
  const [note, setNote] = useState("");
  const menu = useId();
  const log = useLogWindow(id, rank);
  const { jump, toEnd } = log;
  useEffect(() => {
    onRank?.(rank);
  }, [onRank, rank]);
  const showMatch = useCallback(
    (match: LogMatch, text: string) => {
      setNeedle(text);
      setNote("");
      setRank(match.rank);
      void jump(match.rank, match.offset);
    },
    [jump],
  );
  const showTime = async (time: number) => {
    const part = await model.attempt(() => model.api.logAt(id, rank, time));
    setNote(part && part.offset >= part.size ? trans.__("Rank %1 has printed nothing since then.", rank) : "");
    if (part) await jump(rank, part.offset);
  };
  const choose = (value: string) => {
    setRank(Number(value));
    setNote("");
    toEnd();
  };
  const options = ranks.map((one): Option => [String(one), trans.__("rank %1", one)]);
  return (
    <section className="fd-full-log" aria-label={trans.__("Log of run %1", id)}>
      <div className="fd-row">
        <label htmlFor={menu}>{trans.__("Log of")}</label>
        <Select id={menu} value={String(rank)} options={options} set={choose} />
        <LogSearch id={id} rank={rank} several={ranks.length > 1} show={showMatch} />
        <LogTime started={started} jump={(time) => void showTime(time)} />
        <label>
          <input type="checkbox" checked={wrap !== ""} onChange={(event) => setWrap(event.target.checked ? "1" : "")} />
          {trans.__("Wrap lines")}
        </label>
        <button type="button" className="fd-small" onClick={() => void jump(rank, 0)}>
          {trans.__("To the start")}
        </button>
        <button type="button" className="fd-small" aria-pressed={log.follow} onClick={toEnd}>
          {trans.__("Follow the end")}
        </button>
      </div>
      {note && <Note info>{note}</Note>}
      <LogRows log={log} label={trans.__("Log of rank %1", rank)} needle={needle} wrap={wrap !== ""} />
    </section>
  );
}
