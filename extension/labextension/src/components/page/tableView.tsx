/** The table of runs with its filters, its menu of columns, and the actions on the selected runs. */

import { useRef, useState, type Dispatch, type JSX, type SetStateAction } from "react";

import { MOST_COMPARED } from "../../charts/comparison";
import { useDebounced } from "../../hooks";
import type { Sort, TableFilter } from "../../net/filters";
import type { RunRow } from "../../wire";
import { usePanelContext } from "../context";
import { Empty, Select, type Option } from "../parts";
import { FilterBar, TYPING_MS } from "../runs/runs";
import { useVirtualRows } from "../runs/virtualRows";
import { ColumnMenu } from "./columnMenu";
import { columnsOf, shownColumns, type Choices } from "./columns";
import { ROW, RunTable } from "./runTable";
import { useRunActions, type RunActions } from "./useRunActions";
import { useRunTable } from "./useRunTable";

/** What the user has chosen in the table. It is kept while a run or a comparison takes the table's place. */
export interface TableChoice {
  readonly filter: TableFilter;
  readonly sort: Sort;
  readonly selected: ReadonlyMap<string, RunRow>;
}

export const FIRST_CHOICE: TableChoice = {
  filter: { text: "", status: "", cluster: "", tag: "" },
  sort: { column: "started", descending: true },
  selected: new Map(),
};

interface Props {
  choice: TableChoice;
  setChoice: Dispatch<SetStateAction<TableChoice>>;
  choices: Choices;
  choose: (choices: Choices) => void;
  previous: string | null;
  /** Open the page of one run, or the comparison of several runs. */
  open: (ids: readonly string[]) => void;
}

export function TableView({ choice, setChoice, choices, choose, previous, open }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const { filter, sort, selected } = choice;
  const box = useRef<HTMLDivElement>(null);
  const [total, setTotal] = useState(0);
  const rows = useVirtualRows(box, { rowHeight: ROW, total, head: ROW });
  const table = useRunTable(useDebounced(filter, TYPING_MS), sort, rows);
  if (table.total !== total) setTotal(table.total);
  const columns = columnsOf(trans, table.names);
  const change = (part: Partial<TableChoice>) => setChoice((before) => ({ ...before, ...part }));
  const setFilter = (next: TableFilter) => change({ filter: next });
  const deselect = (ids: readonly string[]) =>
    setChoice((before) => ({ ...before, selected: new Map([...before.selected].filter(([id]) => !ids.includes(id))) }));
  const actions = useRunActions((deleted) => {
    deselect(deleted);
    table.refresh();
  });
  const select = (run: RunRow, wanted: boolean) => {
    if (wanted) change({ selected: new Map([...selected, [run.id, run]]) });
    else deselect([run.id]);
  };
  const shown = shownColumns(columns, choices);
  return (
    <>
      <FilterBar filter={filter} setFilter={setFilter}>
        <TagFilter filter={filter} names={table.names.tags} set={(tag) => setFilter({ ...filter, tag })} />
      </FilterBar>
      <div className="fd-row">
        <span className="fd-muted" role="status">
          {trans._n("%1 run", "%1 runs", total)}
          {!table.complete && ` · ${trans.__("Values of some runs are still being read…")}`}
        </span>
        <SelectionBar {...{ selected, deselect, actions }} compare={() => open([...selected.keys()])} />
        <span className="fd-grow" />
        <ColumnMenu {...{ columns, choices, choose }} />
      </div>
      {!table.known && <Empty title={trans.__("Loading…")} />}
      {table.known && total === 0 && <Empty title={trans.__("No run matches the filter")} />}
      <RunTable
        {...{ box, table, rows, sort, previous, selected, select, actions }}
        columns={shown}
        setSort={(next) => change({ sort: next })}
        open={(id) => open([id])}
      />
    </>
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
  selected: ReadonlyMap<string, RunRow>;
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
