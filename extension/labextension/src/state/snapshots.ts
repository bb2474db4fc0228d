/** What the tab of snapshots shows, and the list of snapshots by day. */

import { date } from "../format";
import type { Translator } from "../i18n";
import type { FilePlace } from "../net/api";
import type { Snapshot, SnapshotChanges, SnapshotPage } from "../wire";

/** What the tab shows. */
export type Place =
  | { readonly show: "list"; /** The snapshot that the user has just left. */ readonly previous: string }
  | { readonly show: "files"; readonly snapshot: Snapshot; readonly path: string }
  | { readonly show: "versions"; readonly of: FilePlace; readonly back: Place };

export const LIST: Place = { show: "list", previous: "" };

/** What is known of snapshots. It is kept while the panel shows another tab. */
export interface KnownSnapshots {
  page: SnapshotPage | null;
  readonly changes: Map<string, SnapshotChanges>;
}

export interface Day {
  readonly date: string;
  readonly snapshots: readonly Snapshot[];
}

/** Group snapshots, which are sorted, by the day on which they were taken, in the browser's time zone. */
export function byDay(snapshots: readonly Snapshot[]): Day[] {
  const days = new Map<string, Snapshot[]>();
  for (const snapshot of snapshots) {
    const day = date(new Date(snapshot.time * 1000));
    const others = days.get(day);
    if (others) others.push(snapshot);
    else days.set(day, [snapshot]);
  }
  return [...days].map(([day, all]) => ({ date: day, snapshots: all }));
}

/** Return the name of a day, e.g. Today or 2026-11-25. */
export function dayText(trans: Translator, day: string, now: Date): string {
  if (day === date(now)) return trans.__("Today");
  const yesterday = new Date(now.getFullYear(), now.getMonth(), now.getDate() - 1);
  return day === date(yesterday) ? trans.__("Yesterday") : day;
}

/** Return the path of a name in a folder. Both are relative to the home, whose path is empty. */
export function pathIn(folder: string, name: string): string {
  return folder ? `${folder}/${name}` : name;
}
