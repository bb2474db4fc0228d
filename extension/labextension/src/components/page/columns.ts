/** The columns of the table of runs. */

import { bytes, configText, number } from "../../format";
import type { Translator } from "../../i18n";
import type { ConfigValue, RunRow, RunTable } from "../../wire";

/** The names of the series, hyper-parameters and tags that occur in the table. */
export type Names = Pick<RunTable, "series" | "config" | "tags">;

/** A row with its values by the keys of their columns. */
export interface TableRow extends RunRow {
  readonly cells: ReadonlyMap<string, ConfigValue>;
}

export interface Column {
  /** The name by which the server sorts the column. */
  readonly key: string;
  readonly label: string;
  /** The width in pixels. */
  readonly width: number;
  /** Whether the column is shown until the user chooses. */
  readonly shown: boolean;
  /** The order after the first click on the header, or null if the table cannot be sorted by this column. */
  readonly order: "ascending" | "descending" | null;
  /** The text of a cell, if it is plain text. */
  readonly text?: (run: TableRow) => string;
}

/** The columns that the user has chosen to show or to hide, by their keys. */
export type Choices = Readonly<Record<string, boolean>>;

/**
 * This many series and hyper-parameters have columns until the user chooses others, as in the server's `columns.py`.
 * All rows have the values of these.
 */
const [SERIES_SHOWN, CONFIG_SHOWN] = [4, 8];
/** The server accepts this many other columns. */
const MOST_ADDED = 60;
/** A request names no further columns if their names have this many characters. Proxies refuse long addresses. */
const LONGEST_QUERY = 4000;
const WIDTH = 110;
const HIGHER =
  /(^|[^a-z])(acc|accuracy|auc|auroc|f1|precision|recall|score|r2|map|miou|iou|dice|bleu|rouge|psnr|reward)([^a-z]|$)/i;

/** Return whether a series with this name is better if it is higher, e.g. `val_accuracy` or `F1`. */
export function isHigherBetter(name: string): boolean {
  return HIGHER.test(name);
}

export function columnsOf(trans: Translator, { series, config }: Names): Column[] {
  const plain = { width: WIDTH, shown: true, order: "ascending" } as const;
  return [
    { ...plain, key: "name", label: trans.__("Name"), width: 220 },
    { ...plain, key: "status", label: trans.__("Status"), width: 120 },
    { ...plain, key: "started", label: trans.__("Start"), width: 130, order: "descending" },
    { ...plain, key: "seconds", label: trans.__("Duration"), width: 90 },
    { ...plain, key: "size", label: trans.__("Ranks"), width: 70, text: (run) => String(run.size) },
    ...config.map((name, place) => configColumn(name, place < CONFIG_SHOWN)),
    ...series.flatMap((name, place) => seriesColumns(trans, name, place < SERIES_SHOWN)),
    { ...plain, key: "tags", label: trans.__("Tags"), width: 180, order: null },
    { ...plain, key: "notes", label: trans.__("Notes"), width: 220, order: null },
    { ...plain, key: "bytes", label: trans.__("Disk"), width: 90, text: (run) => bytes(run.bytes) },
    { ...plain, key: "cluster", label: trans.__("Cluster"), shown: false, text: (run) => run.cluster },
  ];
}

/** Return the columns that are shown. The name is always shown, because it opens the run. */
export function shownColumns(columns: readonly Column[], choices: Choices): Column[] {
  const added = new Set(addedColumns(choices));
  const chosen = ({ key, shown }: Column) =>
    choices[key] && isOfValues(key) ? added.has(key) : (choices[key] ?? shown);
  return columns.filter((column) => column.key === "name" || chosen(column));
}

/** Return the choices after a column was shown or hidden. They contain only what differs from the default columns. */
export function chosenColumn(choices: Choices, { key, shown }: Column, wanted: boolean): Choices {
  const others = Object.entries(choices).filter(([other]) => other !== key);
  return Object.fromEntries([...others, ...(wanted === shown ? [] : [[key, wanted] as const])]);
}

/** Return the keys of the columns of series and hyper-parameters that the user has added, as far as there is room. */
export function addedColumns(choices: Choices): readonly string[] {
  const chosen = Object.keys(choices).filter((key) => choices[key] && isOfValues(key));
  return chosen.reduce<readonly string[]>((added, key) => (hasRoom(added) ? [...added, key] : added), []);
}

/** Return whether the user can add another column to these. */
export function hasRoom(added: readonly string[]): boolean {
  return added.length < MOST_ADDED && encodeURIComponent(added.join()).length < LONGEST_QUERY;
}

/** Return whether a column shows the values of a series or of a hyper-parameter. */
export function isOfValues(key: string): boolean {
  return key.startsWith("config.") || key.startsWith("series.");
}

/** Return the rows of a page of the table. */
export function rowsOf({ columns, runs }: RunTable): TableRow[] {
  return runs.map((run) => ({ ...run, cells: new Map(columns.map((key, n) => [key, run.values[n] ?? null])) }));
}

/** Return the text of a value. It is empty until a row with a column that the user has just added is fetched. */
function valueText({ cells }: TableRow, key: string): string {
  const value = cells.get(key);
  if (value === undefined) return "";
  return key.startsWith("series.") && typeof value === "number" ? number(value) : configText(value ?? undefined);
}

function configColumn(name: string, shown: boolean): Column {
  const key = `config.${name}`;
  return { key, label: name, width: WIDTH, shown, order: "ascending", text: (run) => valueText(run, key) };
}

/** Return the columns for the last, lowest and highest value of a series. The better of these is shown first. */
function seriesColumns(trans: Translator, name: string, shown: boolean): Column[] {
  const higher = isHigherBetter(name);
  const column = (which: string, label: string, visible: boolean, descending: boolean): Column => {
    const key = `series.${name}.${which}`;
    const order = descending ? "descending" : "ascending";
    return { key, label, width: WIDTH, shown: shown && visible, order, text: (run) => valueText(run, key) };
  };
  return [
    column("last", trans.__("%1, last", name), true, higher),
    column("lowest", trans.__("%1, lowest", name), !higher, false),
    column("highest", trans.__("%1, highest", name), higher, true),
  ];
}
