/** The table of runs. Only the visible rows are rendered, because there can be very many runs. */

import { Fragment, useEffect, useRef, type JSX, type RefObject } from "react";

import type { Sort } from "../../net/filters";
import type { RunRow } from "../../wire";
import { usePanelContext } from "../context";
import { useReturnedFocus, type VirtualRows } from "../runs/virtualRows";
import type { Column } from "./columns";
import { Row } from "./row";
import type { RunActions } from "./useRunActions";
import type { RunTableState } from "./useRunTable";

/** The height of a row and of the header, in pixels, as in `runs-page.css`. */
export const ROW = 36;
const SELECT_WIDTH = 32;
const BUTTONS_WIDTH = 170;

interface Props {
  box: RefObject<HTMLDivElement>;
  table: RunTableState;
  rows: VirtualRows;
  columns: readonly Column[];
  sort: Sort;
  setSort: (sort: Sort) => void;
  /** Id of the run whose page the user has just left. The row of this run takes the focus. */
  previous: string | null;
  selected: ReadonlyMap<string, RunRow>;
  select: (run: RunRow, selected: boolean) => void;
  open: (id: string) => void;
  actions: RunActions;
}

export function RunTable(all: Props): JSX.Element {
  const { box, table, rows, columns, sort, setSort, previous, selected, ...props } = all;
  const { trans } = usePanelContext();
  const { total } = table;
  const { onScroll, onKeyDown, active, rendered, setActive } = rows;
  useReturnedFocus(box, previous, table.known);
  const order = JSON.stringify(sort);
  const sorted = useRef(order);
  useEffect(() => {
    if (sorted.current !== order && box.current) box.current.scrollTop = 0;
    sorted.current = order;
  }, [box, order]);
  const width = columns.reduce((sum, column) => sum + column.width, SELECT_WIDTH + BUTTONS_WIDTH);
  return (
    <div ref={box} className="fd-run-table" hidden={total === 0} {...{ onScroll, onKeyDown }}>
      <table aria-label={trans.__("Runs")} aria-rowcount={total + 1} style={{ width }}>
        <colgroup>
          <col style={{ width: SELECT_WIDTH }} />
          {columns.map(({ key, width: own }) => (
            <col key={key} style={{ width: own }} />
          ))}
          <col style={{ width: BUTTONS_WIDTH }} />
        </colgroup>
        <Head {...{ columns, sort, setSort }} />
        <tbody>
          {rendered.map((row, n) => {
            const run = table.at(row);
            return (
              <Fragment key={row}>
                <Gap rows={row - (rendered[n - 1] ?? -1) - 1} span={columns.length + 2} />
                <tr aria-rowindex={row + 2} onFocus={() => setActive(row)}>
                  <Row {...{ run, row, columns, ...props }} active={row === active} selected={isIn(selected, run)} />
                </tr>
              </Fragment>
            );
          })}
          <Gap rows={total - (rendered.at(-1) ?? -1) - 1} span={columns.length + 2} />
        </tbody>
      </table>
    </div>
  );
}

function isIn(selected: ReadonlyMap<string, RunRow>, run: RunRow | null): boolean {
  return run !== null && selected.has(run.id);
}

/** Takes the place of rows that are not rendered. */
function Gap({ rows, span }: { rows: number; span: number }): JSX.Element | null {
  if (rows <= 0) return null;
  return (
    <tr aria-hidden className="fd-gap">
      <td colSpan={span} style={{ height: rows * ROW }} />
    </tr>
  );
}

function Head({ columns, sort, setSort }: Pick<Props, "columns" | "sort" | "setSort">): JSX.Element {
  const { trans } = usePanelContext();
  return (
    <thead>
      <tr aria-rowindex={1}>
        <td className="fd-cell-select" />
        {columns.map((column) => (
          <HeadCell key={column.key} {...{ column, sort, setSort }} />
        ))}
        <th scope="col">{trans.__("Actions")}</th>
      </tr>
    </thead>
  );
}

/** The header of a column. A click sorts the table by the column, and another click reverses the order. */
function HeadCell({ column, sort, setSort }: { column: Column } & Pick<Props, "sort" | "setSort">): JSX.Element {
  const { key, label, order } = column;
  const sorted = sort.column === key;
  const descending = sorted ? !sort.descending : order === "descending";
  const className = key === "name" ? "fd-cell-name" : undefined;
  if (!order) return <th scope="col">{label}</th>;
  return (
    <th
      scope="col"
      className={className}
      aria-sort={sorted ? (sort.descending ? "descending" : "ascending") : undefined}
    >
      <button type="button" title={label} onClick={() => setSort({ column: key, descending })}>
        <span className="fd-cell-text">{label}</span>
        {sorted && <span aria-hidden>{sort.descending ? "▼" : "▲"}</span>}
      </button>
    </th>
  );
}
