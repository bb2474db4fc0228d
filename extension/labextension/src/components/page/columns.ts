/** The columns of the table of runs. */

import { bytes, configText, number } from "../../format";
import type { Translator } from "../../i18n";
import type { ReportedValues, RunRow, RunTable } from "../../wire";

/** The names of the series, hyper-parameters and tags that occur in the table. */
export type Names = Pick<RunTable, "series" | "config" | "tags">;

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
  readonly text?: (run: RunRow) => string;
}

/** The columns that the user has chosen to show or to hide, by their keys. */
export type Choices = Readonly<Record<string, boolean>>;

/** This many series have columns until the user chooses others. */
const SERIES_SHOWN = 4;
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
    ...config.map((name) => configColumn(name)),
    ...series.flatMap((name, place) => seriesColumns(trans, name, place < SERIES_SHOWN)),
    { ...plain, key: "tags", label: trans.__("Tags"), width: 180, order: null },
    { ...plain, key: "notes", label: trans.__("Notes"), width: 220, order: null },
    { ...plain, key: "bytes", label: trans.__("Disk"), width: 90, text: (run) => bytes(run.bytes) },
    { ...plain, key: "cluster", label: trans.__("Cluster"), shown: false, text: (run) => run.cluster },
  ];
}

/** Return the columns that are shown. The name is always shown, because it opens the run. */
export function shownColumns(columns: readonly Column[], choices: Choices): Column[] {
  return columns.filter(({ key, shown }) => key === "name" || (choices[key] ?? shown));
}

function configColumn(name: string): Column {
  const text = ({ config }: RunRow) => configText(Object.hasOwn(config, name) ? config[name] : undefined);
  return { key: `config.${name}`, label: name, width: WIDTH, shown: true, order: "ascending", text };
}

/** Return the columns for the last, lowest and highest value of a series. The better of these is shown first. */
function seriesColumns(trans: Translator, name: string, shown: boolean): Column[] {
  const higher = isHigherBetter(name);
  const column = (which: keyof ReportedValues, label: string, visible: boolean, descending: boolean): Column => ({
    key: `series.${name}.${which}`,
    label,
    width: WIDTH,
    shown: shown && visible,
    order: descending ? "descending" : "ascending",
    text: ({ series }) => number(Object.hasOwn(series, name) ? (series[name]?.[which] ?? null) : null),
  });
  return [
    column("last", trans.__("%1, last", name), true, higher),
    column("lowest", trans.__("%1, lowest", name), !higher, false),
    column("highest", trans.__("%1, highest", name), higher, true),
  ];
}
