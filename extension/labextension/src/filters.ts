/** Which runs the list shows. */

import { title } from "./format";
import type { RunStatus, RunSummary } from "./wire";

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

/** Return the filter as the query of `GET runs`, without what lets all through. */
export function query(filter: Filter, offset: number, limit: number): Record<string, string> {
  const wanted = { text: filter.text.trim(), status: filter.status, cluster: filter.cluster };
  const told = Object.entries(wanted).filter(([, value]) => value);
  return { offset: String(offset), limit: String(limit), ...Object.fromEntries(told) };
}

/** Whether a filter lets a run through; the text is looked for in its name, id and notebook. */
export function matches(run: RunSummary, filter: Filter): boolean {
  const text = filter.text.trim().toLowerCase();
  const found = [title(run), run.id, run.notebook].some((part) => part.toLowerCase().includes(text));
  return (
    found && (!filter.status || run.status === filter.status) && (!filter.cluster || run.cluster === filter.cluster)
  );
}
