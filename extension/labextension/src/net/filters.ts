/** The filters and the order of the list and of the table of runs. */

import type { RunStatus } from "../wire";

export interface Filter {
  readonly text: string;
  readonly status: RunStatus | "";
  readonly cluster: string;
}

export const ALL: Filter = { text: "", status: "", cluster: "" };

export const STATUSES: readonly RunStatus[] = ["running", "finished", "failed", "interrupted", "lost"];

export function isAll(filter: Filter): boolean {
  return !filter.text.trim() && !filter.status && !filter.cluster;
}

/** Return the query parameters for `GET runs`. Empty fields of the filter are omitted. */
export function query(filter: Filter, offset: number, limit: number): Record<string, string> {
  const wanted = { text: filter.text.trim(), status: filter.status, cluster: filter.cluster };
  const set = Object.entries(wanted).filter(([, value]) => value);
  return { offset: String(offset), limit: String(limit), ...Object.fromEntries(set) };
}

/** The filter for the table of runs. */
export interface TableFilter extends Filter {
  readonly tag: string;
}

/** The column by which the table is sorted, by the name that the server uses, e.g. `series.loss.lowest`. */
export interface Sort {
  readonly column: string;
  readonly descending: boolean;
}

export const ALL_RUNS: TableFilter = { ...ALL, tag: "" };
export const NEWEST: Sort = { column: "started", descending: true };

/** Return whether a filter for the table hides no run. */
export function isAllRuns(filter: TableFilter): boolean {
  return isAll(filter) && !filter.tag;
}

/** Return the query parameters for `GET table`. `added` are the columns that its rows have besides the first ones. */
export function tableQuery(
  filter: TableFilter,
  sort: Sort,
  added: readonly string[],
  offset: number,
  limit: number,
): URLSearchParams {
  const parameters = new URLSearchParams({
    ...query(filter, offset, limit),
    ...(filter.tag && { tag: filter.tag }),
    sort: sort.column,
    ...(sort.descending && { descending: "1" }),
  });
  added.forEach((column) => parameters.append("column", column));
  return parameters;
}
