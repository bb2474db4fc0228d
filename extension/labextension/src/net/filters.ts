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

/** Return the query parameters for `GET table`. */
export function tableQuery(filter: TableFilter, sort: Sort, offset: number, limit: number): Record<string, string> {
  return {
    ...query(filter, offset, limit),
    ...(filter.tag && { tag: filter.tag }),
    sort: sort.column,
    ...(sort.descending && { descending: "1" }),
  };
}
