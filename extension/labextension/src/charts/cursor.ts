/** The x value that the user reads with the pointer or the arrow keys, in all charts of a group. */

import { useSyncExternalStore } from "react";

/** An x value on the axis with this label. The charts of a group may have different axes. */
export interface Place {
  label: string;
  at: number;
}

/** Holds the place outside of React's state, so that only the readings of the charts are rendered when it moves. */
export class Cursor {
  readonly place = (): Place | null => this.current;

  move(label: string, at: number | null): void {
    if (at !== null && at === this.current?.at && label === this.current.label) return;
    this.current = at === null ? null : { label, at };
    this.listeners.forEach((listener) => listener());
  }

  leave(): void {
    this.move("", null);
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  };

  private current: Place | null = null;
  private readonly listeners = new Set<() => void>();
}

/** Return the x value that the user reads on the axis with this label, or null. */
export function useReadAt(cursor: Cursor, label: string): number | null {
  const place = useSyncExternalStore(cursor.subscribe, cursor.place);
  return place?.label === label ? place.at : null;
}
