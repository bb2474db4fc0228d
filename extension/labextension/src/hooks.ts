/** React hooks that several components use. */

import { useCallback, useEffect, useState, type RefObject } from "react";

/** Return a state that the browser stores per tab, so that it survives a reload of the page. */
export function useSessionState(name: string, initial: string): [string, (value: string) => void] {
  const key = `farandole:${name}`;
  const [value, setValue] = useState(() => sessionStorage.getItem(key) ?? initial);
  const store = useCallback(
    (next: string) => {
      sessionStorage.setItem(key, next);
      setValue(next);
    },
    [key],
  );
  return [value, store];
}

/** Return the last value that has stayed unchanged for the given time. */
export function useDebounced<T>(value: T, milliseconds: number): T {
  const [debounced, setDebounced] = useState(value);
  useEffect(() => {
    if (value === debounced) return undefined;
    const timer = setTimeout(() => setDebounced(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, debounced, milliseconds]);
  return debounced;
}

/** Return the current width or height of an element, or `initial` until the element is laid out. */
export function useSize(element: RefObject<Element>, side: "clientWidth" | "clientHeight", initial: number): number {
  const [size, setSize] = useState(initial);
  useEffect(() => {
    const observer = new ResizeObserver(() => setSize(element.current?.[side] || initial));
    if (element.current) observer.observe(element.current);
    return () => observer.disconnect();
  }, [element, side, initial]);
  return size;
}
