/** The columns of the table of runs. */

import { bytes, configText, number } from "../../format";
import type { Translator } from "../../i18n";
import { NEWEST, type Sort } from "../../net/filters";
import type { ConfigValue, RunRow, RunTable } from "../../wire";

/** The names of the series, hyper-parameters and tags that occur in the table, and the columns of all its rows. */
export type Names = Pick<RunTable, "series" | "config" | "tags" | "defaults">;

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
  /** Whether rows have the column also if no request adds it. */
  readonly sent: boolean;
  /** The order after the first click on the header, or null if the table cannot be sorted by this column. */
  readonly order: "ascending" | "descending" | null;
  /** The text of a cell, if it is plain text. */
  readonly text?: (run: TableRow) => string;
}

/** The columns that the user has chosen to show or to hide, by their keys. */
export type Choices = Readonly<Record<string, boolean>>;

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

export function columnsOf(trans: Translator, { series, config, defaults }: Names): Column[] {
  const plain = { width: WIDTH, shown: true, sent: true, order: "ascending" } as const;
  const sent = new Set(defaults);
  return [
    { ...plain, key: "name", label: trans.__("Name"), width: 220 },
    { ...plain, key: "status", label: trans.__("Status"), width: 120 },
    { ...plain, key: "started", label: trans.__("Start"), width: 130, order: "descending" },
    { ...plain, key: "seconds", label: trans.__("Duration"), width: 90 },
    { ...plain, key: "size", label: trans.__("Ranks"), width: 70, text: (run) => String(run.size) },
    ...config.map((name) => configColumn(name, sent)),
    ...series.flatMap((name) => seriesColumns(trans, name, sent)),
    { ...plain, key: "tags", label: trans.__("Tags"), width: 180, order: null },
    { ...plain, key: "notes", label: trans.__("Notes"), width: 220, order: null },
    { ...plain, key: "bytes", label: trans.__("Disk"), width: 90, text: (run) => bytes(run.bytes) },
    { ...plain, key: "cluster", label: trans.__("Cluster"), shown: false, text: (run) => run.cluster },
  ];
}

/** Return the columns that are shown. The name is always shown, because it opens the run, and so is the sorted column. */
export function shownColumns(columns: readonly Column[], choices: Choices, sort: Sort): Column[] {
  const added = new Set(addedColumns(choices, sort, columns));
  const wanted = ({ key, shown }: Column) => key === "name" || key === sortedColumn(sort) || (choices[key] ?? shown);
  return columns.filter((column) => wanted(column) && (column.sent || added.has(column.key)));
}

/** Return the column by which the user has sorted the table, or null in the first order. */
function sortedColumn({ column, descending }: Sort): string | null {
  return column === NEWEST.column && descending ? null : column;
}

/** Return the order, or the first one if its column does not exist. `columns` are null until all names are known. */
export function validSort(sort: Sort, columns: readonly Column[] | null): Sort {
  return !columns || columns.some(({ key }) => key === sort.column) ? sort : NEWEST;
}

/**
 * Return the choices after a column was shown or hidden. They contain only what differs from the default columns, and
 * none of the columns that have vanished. `columns` are null until all names are known.
 */
export function chosenColumn(
  choices: Choices,
  { key, shown }: Column,
  wanted: boolean,
  columns: readonly Column[] | null,
): Choices {
  const known = columns && new Set(columns.map((column) => column.key));
  const others = Object.entries(choices).filter(([other]) => other !== key && (known?.has(other) ?? true));
  return Object.fromEntries([...others, ...(wanted === shown ? [] : [[key, wanted] as const])]);
}

/**
 * Return the keys of the columns of series and hyper-parameters that rows have only if a request adds them, as far as
 * there is room: the sorted one, and those that the user has added. `columns` are null until all names are known.
 */
export function addedColumns(choices: Choices, sort: Sort, columns: readonly Column[] | null): readonly string[] {
  const chosen = Object.keys(choices).filter((key) => choices[key] && isOfValues(key));
  const unsent = columns && new Set(columns.filter(({ sent }) => !sent).map(({ key }) => key));
  const wanted = unsent ? [...new Set([sort.column, ...chosen])].filter((key) => unsent.has(key)) : chosen;
  return wanted.reduce<readonly string[]>((added, key) => (hasRoom(added) ? [...added, key] : added), []);
}

/** Return whether the user can add another column to these. */
export function hasRoom(added: readonly string[]): boolean {
  return added.length < MOST_ADDED && encodeURIComponent(added.join()).length < LONGEST_QUERY;
}

/** Return whether a column shows the values of a series or of a hyper-parameter. */
function isOfValues(key: string): boolean {
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

/** Return the column of a hyper-parameter. `sent` are the columns that all rows have. */
function configColumn(name: string, sent: ReadonlySet<string>): Column {
  const key = `config.${name}`;
  const first = sent.has(key);
  const text = (run: TableRow) => valueText(run, key);
  return { key, label: name, width: WIDTH, shown: first, sent: first, order: "ascending", text };
}

/** Return the columns for the last, lowest and highest value of a series. The better of these is shown first. */
function seriesColumns(trans: Translator, name: string, sent: ReadonlySet<string>): Column[] {
  const higher = isHigherBetter(name);
  const column = (which: string, label: string, visible: boolean, descending: boolean): Column => {
    const key = `series.${name}.${which}`;
    const order = descending ? "descending" : "ascending";
    const text = (run: TableRow) => valueText(run, key);
    return { key, label, width: WIDTH, shown: sent.has(key) && visible, sent: sent.has(key), order, text };
  };
  return [
    column("last", trans.__("%1, last", name), true, higher),
    column("lowest", trans.__("%1, lowest", name), !higher, false),
    column("highest", trans.__("%1, highest", name), higher, true),
  ];
}
