/** The rows of a log. Only the visible rows are rendered, and more of the log is fetched when the user scrolls. */

import { useLayoutEffect, useMemo, useRef, useState, type JSX } from "react";

import { useSize } from "../../hooks";
import { LONGEST_ROW, pieces, rowAt, rowsOf } from "../../state/logRows";
import { usePanelContext } from "../context";
import { rowsOf as visibleRows } from "../runs/virtualRows";
import type { LogWindow } from "./useLogWindow";

export const ROW = 18;
const INITIAL_HEIGHT = 480;
const INITIAL_WIDTH = 800;
/** Text whose width says how wide a character is. */
const PROBE = "0".repeat(20);
/** How near to an end of the window the user must be, in pixels, before more of the log is fetched. */
const NEAR = 20 * ROW;

interface Props {
  log: LogWindow;
  label: string;
  needle: string;
  wrap: boolean;
}

export function LogRows({ log: window, label, needle, wrap }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const { log, follow, target } = window;
  const box = useRef<HTMLDivElement>(null);
  const probe = useRef<HTMLSpanElement>(null);
  const [scrollTop, setScrollTop] = useState(0);
  const height = useSize(box, "clientHeight", INITIAL_HEIGHT);
  const width = useSize(box, "clientWidth", INITIAL_WIDTH);
  const character = useSize(probe, "clientWidth", 7.2 * PROBE.length) / PROBE.length;
  const columns = wrap ? Math.max(20, Math.floor((width - 24) / character)) : LONGEST_ROW;
  const rows = useMemo(() => (log ? rowsOf(log, columns) : []), [log, columns]);
  const anchor = useRef({ offset: 0, rest: 0 });
  const reached = useRef<LogWindow["target"]>(null);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    let top = rowAt(rows, anchor.current.offset) * ROW + anchor.current.rest;
    if (follow) top = Math.max(0, rows.length * ROW - height);
    else if (target && target !== reached.current) top = rowAt(rows, target.offset) * ROW - height / 2;
    reached.current = target;
    element.scrollTop = top;
    setScrollTop(element.scrollTop);
  }, [rows, follow, target, height]);
  const onScroll = ({ scrollTop: top, scrollHeight, clientHeight }: HTMLElement) => {
    setScrollTop(top);
    anchor.current = { offset: rows[Math.floor(top / ROW)]?.offset ?? 0, rest: top % ROW };
    if (follow && top + clientHeight < scrollHeight - ROW) window.stay();
    else if (!follow && top < NEAR) void window.loadEarlier();
    else if (!follow && top + clientHeight > scrollHeight - NEAR) void window.loadLater();
  };
  const { first, last } = visibleRows({ scrollTop, height, rowHeight: ROW, total: rows.length });
  const current = target ? rowAt(rows, target.offset) : -1;
  return (
    <div
      ref={box}
      className="fd-log-rows"
      role="log"
      aria-live="off"
      aria-label={label}
      tabIndex={0}
      onScroll={(event) => onScroll(event.currentTarget)}
    >
      <span ref={probe} className="fd-log-probe" aria-hidden="true">
        {PROBE}
      </span>
      {!rows.length && (log ? trans.__("The log is empty.") : trans.__("Waiting for the log…"))}
      <div style={{ height: rows.length * ROW }}>
        {rows.slice(first, last).map(({ text }, n) => (
          <div
            key={first + n}
            className="fd-log-row"
            style={{ top: (first + n) * ROW }}
            aria-current={first + n === current || undefined}
          >
            <Marked text={text} needle={needle} />
          </div>
        ))}
      </div>
    </div>
  );
}

function Marked({ text, needle }: { text: string; needle: string }): JSX.Element {
  return <>{pieces(text, needle).map((piece, n) => (n % 2 ? <mark key={n}>{piece}</mark> : piece))}</>;
}
