/**
 * Renders only the visible rows of a long list, and a few rows above and below them.
 *
 * The arrow keys, Home and End move the focus between the rows. The element of each row that takes the focus has the
 * attribute `data-row`, and `data-run` with the id of its run.
 */

import { useEffect, useRef, useState, type KeyboardEvent, type RefObject, type UIEvent } from "react";

import { useSize } from "../../hooks";

const INITIAL_HEIGHT = 480;

export interface View {
  readonly scrollTop: number;
  readonly height: number;
  readonly rowHeight: number;
  readonly total: number;
}

/** The rows from `first` (inclusive) to `last` (exclusive). */
export interface Rows {
  readonly first: number;
  readonly last: number;
}

export const OVERSCAN = 4;

/** Return the rows to render: the visible rows, and `OVERSCAN` rows above and below them. */
export function rowsOf({ scrollTop, height, rowHeight, total }: View): Rows {
  const visible = Math.ceil(height / rowHeight) + 1;
  const top = Math.min(Math.max(0, Math.floor(scrollTop / rowHeight)), Math.max(0, total - visible));
  return { first: Math.max(0, top - OVERSCAN), last: Math.min(total, top + visible + OVERSCAN) };
}

/** Return the scroll position at which a row is visible. If the row is already visible, the position stays the same. */
export function scrollTo(row: number, { scrollTop, height, rowHeight }: View): number {
  const top = row * rowHeight;
  if (top < scrollTop) return top;
  return Math.max(scrollTop, top + rowHeight - height);
}

export interface VirtualRows extends Rows {
  /** The row that has the focus, or receives it when Tab is pressed. It is always rendered. */
  readonly active: number;
  readonly rendered: readonly number[];
  readonly setActive: (row: number) => void;
  readonly onScroll: (event: UIEvent) => void;
  readonly onKeyDown: (event: KeyboardEvent) => void;
}

/** Return the rows to render in a box that scrolls. `head` is the height of a header that covers the top of the box. */
export function useVirtualRows(
  box: RefObject<HTMLElement>,
  { rowHeight, total, head = 0 }: { rowHeight: number; total: number; head?: number },
): VirtualRows {
  const [scrollTop, setScrollTop] = useState(0);
  const [current, setActive] = useState(0);
  const height = useSize(box, "clientHeight", INITIAL_HEIGHT) - head;
  const view: View = { scrollTop, height, rowHeight, total };
  const rows = rowsOf(view);
  const active = Math.max(0, Math.min(current, total - 1));
  const moved = useRef(false);
  useEffect(() => {
    if (moved.current) box.current?.querySelector<HTMLElement>(`[data-row="${active}"]`)?.focus();
    moved.current = false;
  }, [box, active]);
  const onKeyDown = (event: KeyboardEvent) => {
    const next = nextRow(event.key, active, total);
    if (next === null || !box.current) return;
    event.preventDefault();
    const top = (box.current.scrollTop = scrollTo(next, view));
    setScrollTop(top);
    moved.current = next !== active;
    setActive(next);
  };
  const onScroll = (event: UIEvent) => setScrollTop(event.currentTarget.scrollTop);
  return { ...rows, active, rendered: rendered(rows, active, total), setActive, onScroll, onKeyDown };
}

/** Focus the row of the run whose page the user has just left, or the first row, once the list is known. */
export function useReturnedFocus(box: RefObject<HTMLElement>, previous: string | null, known: boolean): void {
  useEffect(() => {
    if (!previous || !known) return;
    const buttons = box.current?.querySelectorAll<HTMLElement>("[data-row]") ?? [];
    ([...buttons].find((button) => button.dataset["run"] === previous) ?? buttons[0])?.focus();
  }, [box, previous, known]);
}

/** Return the rows to render, which include the active row. */
function rendered({ first, last }: Rows, active: number, total: number): number[] {
  const visible = Array.from({ length: Math.max(0, last - first) }, (_, n) => first + n);
  if (active >= total) return visible;
  return [...(active < first ? [active] : []), ...visible, ...(active >= last ? [active] : [])];
}

/** Return the row to which a key moves the focus, or null if the key does not move it. */
function nextRow(key: string, row: number, total: number): number | null {
  const next = { ArrowDown: row + 1, ArrowUp: row - 1, Home: 0, End: total - 1 }[key];
  return next === undefined ? null : Math.min(Math.max(0, next), total - 1);
}
