/** Shows a log, to which new output is added as soon as the server sends it. */

import { useEffect, useId, useMemo, useRef, useState, type JSX } from "react";

import { logKey, readable, TAIL } from "../state/logs";
import type { LogRequest, RankRow } from "../wire";
import { usePanelContext, usePanelState, useSubscription } from "./context";
import { Select, type Option } from "./parts";

interface Props {
  of: Omit<LogRequest, "offset">;
  label: string;
}

export function LogView({ of, label }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const log = usePanelState().logs[logKey(of)];
  const [follow, setFollow] = useState(true);
  const box = useRef<HTMLPreElement>(null);
  useSubscription({ logs: [{ ...of, offset: TAIL }] });
  const text = useMemo(() => readable(log?.text ?? ""), [log?.text]);
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text, follow]);
  return (
    <div className="fd-log">
      <pre
        ref={box}
        role="log"
        aria-live="off"
        aria-label={label}
        tabIndex={0}
        onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) =>
          setFollow(scrollTop + clientHeight >= scrollHeight - 4)
        }
      >
        {log && log.offset > 0 ? "…\n" : ""}
        {text || (log ? trans.__("The log is empty.") : trans.__("Waiting for the log…"))}
      </pre>
      {!follow && (
        <button type="button" className="fd-small" onClick={() => setFollow(true)}>
          {trans.__("To the end")}
        </button>
      )}
    </div>
  );
}

/** A menu of the ranks of a run, and the log of the selected rank. */
export function RankLog({ run, rows }: { run: string; rows: readonly RankRow[] }): JSX.Element {
  const { trans } = usePanelContext();
  const [rank, setRank] = useState("");
  const id = useId();
  const ranks = rows.map((row): Option => [String(row.rank), trans.__("rank %1", row.rank)]);
  return (
    <div>
      <div className="fd-row">
        <label htmlFor={id}>{trans.__("Log of")}</label>
        <Select id={id} value={rank} options={[["", trans.__("no rank")], ...ranks]} set={setRank} />
      </div>
      {rank && (
        <LogView key={rank} of={{ run, rank: Number(rank), worker: null }} label={trans.__("Log of rank %1", rank)} />
      )}
    </div>
  );
}
