/** Computes which rows of a long list are rendered: the visible rows, and a few rows above and below them. */

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
