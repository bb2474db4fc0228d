/** The table of runs with its filters, its menu of columns, and the actions on the selected runs. */

import { useRef, useState, type Dispatch, type JSX, type MouseEvent, type SetStateAction } from "react";

import { MOST_COMPARED } from "../../charts/comparison";
import { useDebounced } from "../../hooks";
import type { Translator } from "../../i18n";
import { ALL_RUNS, isAllRuns, NEWEST, type TableFilter } from "../../net/filters";
import type { RunRow } from "../../wire";
import { usePanelContext } from "../context";
import { Empty, Select, type Option } from "../parts";
import { FilterBar, TYPING_MS } from "../runs/runs";
import { useVirtualRows } from "../runs/virtualRows";
import { ColumnMenu } from "./columnMenu";
import {
  addedColumns,
  chosenColumn,
  columnsOf,
  hasRoom,
  shownColumns,
  validSort,
  type Column,
  type Names,
} from "./columns";
import { ROW, RunTable } from "./runTable";
import type { Kept } from "./useKept";
import { useRunActions, type RunActions } from "./useRunActions";
import { useRunTable, type RunTableState } from "./useRunTable";

/** The selected runs by their ids. They stay selected while a run or a comparison takes the table's place. */
export type Selection = ReadonlyMap<string, RunRow>;

interface Props {
  kept: Kept;
  keep: (part: Partial<Kept>) => void;
  selected: Selection;
  setSelected: Dispatch<SetStateAction<Selection>>;
  previous: string | null;
  /** Open the page of one run, or the comparison of several runs. */
  open: (ids: readonly string[]) => void;
}

export function TableView({ kept, keep, selected, setSelected, previous, open }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const { filter, columns: choices } = kept;
  const box = useRef<HTMLDivElement>(null);
  const [total, setTotal] = useState(0);
  const rows = useVirtualRows(box, { rowHeight: ROW, total, head: ROW });
  const [names, setNames] = useState<Names | null>(null);
  const known = names && columnsOf(trans, names);
  const sort = validSort(kept.sort, known);
  const added = addedColumns(choices, sort, known);
  const table = useRunTable(useDebounced(filter, TYPING_MS), sort, added, rows);
  if (table.total !== total) setTotal(table.total);
  if (table.known && table.complete && table.names !== names) setNames(table.names);
  const columns = columnsOf(trans, table.names);
  const shown = shownColumns(columns, choices, sort);
  const choose = (column: Column, wanted: boolean) => {
    // The sorted column is always shown, so another order follows if the user hides it.
    const order = !wanted && column.key === sort.column ? { sort: NEWEST } : {};
    keep({ columns: chosenColumn(choices, column, wanted, known), ...order });
  };
  const setFilter = (next: TableFilter) => keep({ filter: next });
  const deselect = (ids: readonly string[]) =>
    setSelected((before) => new Map([...before].filter(([id]) => !ids.includes(id))));
  const actions = useRunActions((deleted) => {
    deselect(deleted);
    table.refresh();
  });
  const select = (run: RunRow, wanted: boolean) => {
    if (wanted) setSelected((before) => new Map([...before, [run.id, run]]));
    else deselect([run.id]);
  };
  return (
    <>
      <FilterBar filter={filter} setFilter={setFilter}>
        <TagFilter filter={filter} names={table.names.tags} set={(tag) => setFilter({ ...filter, tag })} />
        {!isAllRuns(filter) && <ClearFilters clear={() => setFilter(ALL_RUNS)} />}
      </FilterBar>
      <div className="fd-row">
        <span className="fd-muted" role="status">
          {found(trans, table)}
          {!table.complete && ` · ${trans.__("Values of some runs are still being read…")}`}
        </span>
        <SelectionBar {...{ selected, deselect, actions }} compare={() => open([...selected.keys()])} />
        <span className="fd-grow" />
        <ColumnMenu {...{ columns, shown, choose }} full={!hasRoom(added)} restore={() => keep({ columns: {} })} />
      </div>
      {!table.filter && <Empty title={trans.__("Loading…")} />}
      {table.filter && total === 0 && (
        <Empty title={isAllRuns(table.filter) ? trans.__("No run yet") : trans.__("No run matches the filter")} />
      )}
      <RunTable
        {...{ box, table, rows, sort, previous, selected, select, actions }}
        columns={shown}
        setSort={(next) => keep({ sort: next })}
        open={(id) => open([id])}
      />
    </>
  );
}

/** Return how many runs the server has found with a filter. The text is empty until it has answered. */
function found(trans: Translator, { filter, total }: RunTableState): string {
  if (!filter) return "";
  return isAllRuns(filter)
    ? trans._n("%1 run", "%1 runs", total)
    : trans._n("%1 run matches the filters", "%1 runs match the filters", total);
}

/** The button that removes all filters. It vanishes then, so the first field of the bar takes the focus. */
function ClearFilters({ clear }: { clear: () => void }): JSX.Element {
  const { trans } = usePanelContext();
  const onClick = ({ currentTarget }: MouseEvent<HTMLElement>) => {
    currentTarget.parentElement?.querySelector("input")?.focus();
    clear();
  };
  return (
    <button type="button" className="fd-small" onClick={onClick}>
      {trans.__("Clear filters")}
    </button>
  );
}

function TagFilter(props: { filter: TableFilter; names: readonly string[]; set: (tag: string) => void }): JSX.Element {
  const { trans } = usePanelContext();
  const { filter, names, set } = props;
  const tags = [...new Set([...names, filter.tag])].filter(Boolean).sort();
  const options: Option[] = [["", trans.__("any tag")], ...tags.map((tag): Option => [tag, tag])];
  return <Select label={trans.__("Filter by tag")} value={filter.tag} options={options} set={set} />;
}

interface SelectionBarProps {
  selected: Selection;
  deselect: (ids: readonly string[]) => void;
  actions: RunActions;
  compare: () => void;
}

function SelectionBar({ selected, deselect, actions, compare }: SelectionBarProps): JSX.Element {
  const { trans } = usePanelContext();
  const { size } = selected;
  return (
    <>
      <button type="button" disabled={size < 2 || size > MOST_COMPARED} onClick={compare}>
        {trans.__("Compare (%1)", size)}
      </button>
      <button type="button" disabled={!size} onClick={() => void actions.remove([...selected.values()])}>
        {trans.__("Delete (%1)", size)}
      </button>
      {size > 0 && (
        <button type="button" className="fd-small" onClick={() => deselect([...selected.keys()])}>
          {trans.__("Clear the selection")}
        </button>
      )}
      {size > MOST_COMPARED && (
        <span className="fd-muted" role="note">
          {trans.__("At most %1 runs are compared.", MOST_COMPARED)}
        </span>
      )}
    </>
  );
}
