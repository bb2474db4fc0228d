/** The menu in which the user chooses the columns of the table. */

import { useEffect, useRef, type JSX, type KeyboardEvent, type RefObject } from "react";

import { usePanelContext } from "../context";
import type { Column } from "./columns";

interface Props {
  columns: readonly Column[];
  shown: readonly Column[];
  /** Whether there is no room for another column that the server has to add. */
  full: boolean;
  choose: (column: Column, wanted: boolean) => void;
  restore: () => void;
}

export function ColumnMenu({ columns, shown, full, choose, restore }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const menu = useRef<HTMLDetailsElement>(null);
  useCloseOutside(menu);
  const onKeyDown = ({ key }: KeyboardEvent) => {
    if (key !== "Escape") return;
    menu.current?.removeAttribute("open");
    menu.current?.querySelector("summary")?.focus();
  };
  return (
    <details ref={menu} className="fd-columns" onKeyDown={onKeyDown}>
      <summary>{trans.__("Columns")}</summary>
      <fieldset>
        <legend>{trans.__("Columns of the table")}</legend>
        {columns.slice(1).map((column) => (
          <label key={column.key} className="fd-check">
            <input
              type="checkbox"
              checked={shown.includes(column)}
              disabled={full && !shown.includes(column) && !column.sent}
              onChange={(event) => choose(column, event.target.checked)}
            />
            {column.label}
          </label>
        ))}
        {full && (
          <p className="fd-muted" role="note">
            {trans.__("There is no room for more columns; hide one to show another.")}
          </p>
        )}
        <button type="button" className="fd-small" onClick={restore}>
          {trans.__("Restore the default columns")}
        </button>
      </fieldset>
    </details>
  );
}

/** Close the menu when the user clicks elsewhere, because it covers the table. */
function useCloseOutside(menu: RefObject<HTMLDetailsElement>): void {
  useEffect(() => {
    const onPointerDown = ({ target }: Event) => {
      if (!menu.current?.contains(target as Node)) menu.current?.removeAttribute("open");
    };
    document.addEventListener("pointerdown", onPointerDown);
    return () => document.removeEventListener("pointerdown", onPointerDown);
  }, [menu]);
}
