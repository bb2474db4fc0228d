/** A row of the table of runs. */

import type { JSX } from "react";

import { clock, title } from "../../format";
import type { RunRow } from "../../wire";
import { usePanelContext } from "../context";
import { Status } from "../parts";
import { Elapsed } from "../runs/elapsed";
import type { Column, TableRow } from "./columns";
import { Editable } from "./editor";
import { isShortened, tagsIn, type RunActions, type Saved, type Texts } from "./useRunActions";

interface Props {
  run: TableRow | null;
  row: number;
  active: boolean;
  columns: readonly Column[];
  selected: boolean;
  select: (run: RunRow, selected: boolean) => void;
  open: (id: string) => void;
  actions: RunActions;
}

/** The cells of a row. The button that opens the run is rendered before the run is fetched, to have the focus. */
export function Row({ run, row, active, columns, selected, select, open, actions }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const tabIndex = active ? 0 : -1;
  const label = run ? title(run) : trans.__("Loading…");
  return (
    <>
      <td className="fd-cell-select">
        {run && (
          <input
            type="checkbox"
            tabIndex={tabIndex}
            checked={selected}
            aria-label={trans.__("Select %1", label)}
            onChange={(event) => select(run, event.target.checked)}
          />
        )}
      </td>
      <th scope="row" className="fd-cell-name">
        <div className="fd-cell">
          <NameCell {...{ run, tabIndex, actions }}>
            <button
              type="button"
              className="fd-link"
              data-row={row}
              data-run={run?.id}
              aria-disabled={!run}
              tabIndex={tabIndex}
              title={run?.id}
              onClick={() => run && open(run.id)}
            >
              {label}
            </button>
          </NameCell>
        </div>
      </th>
      {columns.slice(1).map((column) => (
        <td key={column.key}>
          <div className="fd-cell">{run && <Cell {...{ run, column, tabIndex, actions }} />}</div>
        </td>
      ))}
      <td>
        <div className="fd-cell">{run && <Buttons {...{ run, tabIndex, actions }} />}</div>
      </td>
    </>
  );
}

interface CellProps {
  run: TableRow;
  tabIndex: number;
  actions: RunActions;
}

/** Return a function that reads the whole of a text of a run. */
function reader(run: TableRow, actions: RunActions, text: (texts: Texts) => string): () => Promise<string | null> {
  return async () => {
    const texts = await actions.texts(run);
    return texts && text(texts);
  };
}

/** Return whether a text was saved, or the text that someone else has saved in the meantime. */
function outcome(saved: Saved, text: (texts: Texts) => string): boolean | string {
  return typeof saved === "boolean" ? saved : text(saved);
}

function NameCell(props: Omit<CellProps, "run"> & { run: TableRow | null; children: JSX.Element }): JSX.Element {
  const { trans } = usePanelContext();
  const { run, tabIndex, actions, children } = props;
  const label = run ? trans.__("Name of %1", title(run)) : trans.__("Loading…");
  const save = async (name: string, before: string) =>
    run !== null && outcome(await actions.edit(run, { name: name.trim() }, { name: before }), (texts) => texts.name);
  const load = run && isShortened(run.name) ? reader(run, actions, ({ name }) => name) : undefined;
  return (
    <Editable {...{ label, tabIndex, load, save }} value={run?.name ?? ""} disabled={!run}>
      {children}
    </Editable>
  );
}

function Cell({ column, run, ...props }: CellProps & { column: Column }): JSX.Element {
  switch (column.key) {
    case "status":
      return <Status of={run.status} />;
    case "started":
      return <>{clock(run.started, new Date())}</>;
    case "seconds":
      return <Elapsed run={run} />;
    case "tags":
      return <Tags run={run} {...props} />;
    case "notes":
      return <Notes run={run} {...props} />;
    default: {
      const text = column.text?.(run);
      return (
        <span className="fd-cell-text" title={text}>
          {text}
        </span>
      );
    }
  }
}

function Tags({ run, tabIndex, actions }: CellProps): JSX.Element {
  const { trans } = usePanelContext();
  const text = ({ tags }: Pick<Texts, "tags">) => tags.join(", ");
  const save = async (next: string, before: string) =>
    outcome(await actions.edit(run, { tags: tagsIn(next) }, { tags: tagsIn(before) }), text);
  const load = isShortened(text(run)) ? reader(run, actions, text) : undefined;
  const label = trans.__("Tags of %1, separated by commas", title(run));
  return (
    <Editable {...{ label, tabIndex, load, save }} value={text(run)}>
      {run.tags.map((tag) => (
        <span key={tag} className="fd-tag" title={tag}>
          {tag}
        </span>
      ))}
    </Editable>
  );
}

function Notes({ run, tabIndex, actions }: CellProps): JSX.Element {
  const { trans } = usePanelContext();
  const text = ({ notes }: Texts) => notes;
  const load = reader(run, actions, text);
  const save = async (notes: string, before: string) =>
    outcome(await actions.edit(run, { notes }, { notes: before }), text);
  return (
    <Editable label={trans.__("Notes of %1", title(run))} value={run.notes} lines {...{ tabIndex, load, save }}>
      <span title={run.notes}>{run.notes}</span>
    </Editable>
  );
}

function Buttons({ run, tabIndex, actions }: CellProps): JSX.Element {
  const { trans } = usePanelContext();
  return (
    <>
      {run.notebook && (
        <button
          type="button"
          className="fd-small"
          tabIndex={tabIndex}
          title={run.notebook}
          aria-label={trans.__("Open the notebook of %1", title(run))}
          onClick={() => void actions.openNotebook(run)}
        >
          {trans.__("Notebook")}
        </button>
      )}
      <button
        type="button"
        className="fd-small"
        tabIndex={tabIndex}
        aria-label={trans.__("Delete %1", title(run))}
        onClick={() => void actions.remove([run])}
      >
        {trans.__("Delete")}
      </button>
    </>
  );
}
