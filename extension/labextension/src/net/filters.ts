/** The filter for the list of runs. */

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
