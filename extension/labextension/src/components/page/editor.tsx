/** Texts in the table that the user changes in place. */

import { useState, type ChangeEvent, type JSX, type KeyboardEvent, type ReactNode } from "react";

import { usePanelContext } from "../context";

interface Props {
  /** The accessible name of the button and the field, e.g. "Notes of first-cnn". */
  label: string;
  value: string;
  tabIndex: number;
  /** Whether the text may have several lines. Shift+Enter begins a line. */
  lines?: boolean;
  disabled?: boolean;
  /** Return the whole text, or null if that failed. It is needed if `value` may be only the beginning of the text. */
  load?: () => Promise<string | null>;
  /**
   * Save the text in place of the text `before`, and return whether that succeeded. If the text was changed elsewhere
   * since, return the present text.
   */
  save: (value: string, before: string) => Promise<boolean | string>;
  children: ReactNode;
}

/** A text with a button that replaces it by a field. Enter saves the field, Escape restores the text. */
export function Editable({ label, value, tabIndex, lines, disabled, load, save, children }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const [edited, setEdited] = useState<Edited | null>(null);
  // The button takes the focus back from a field that was closed with a key.
  const [focus, setFocus] = useState(false);
  const close = (byKey: boolean) => {
    setFocus(byKey);
    setEdited(null);
  };
  const begin = async () => {
    const text = load ? await load() : value;
    if (text !== null) setEdited({ label, value: text, save });
  };
  if (edited) return <Field {...edited} lines={lines} close={close} />;
  return (
    <>
      <span className="fd-cell-text">{children}</span>
      <button
        type="button"
        className="fd-small fd-edit"
        tabIndex={tabIndex}
        autoFocus={focus}
        disabled={disabled}
        aria-label={trans.__("Edit: %1", label)}
        title={trans.__("Edit: %1", label)}
        onClick={() => void begin()}
      >
        ✎
      </button>
    </>
  );
}

/** The text for which the user has opened the field. The row may show another run before the user closes the field. */
type Edited = Pick<Props, "label" | "value" | "save">;

interface FieldProps extends Edited {
  lines?: boolean;
  close: (byKey: boolean) => void;
}

/**
 * The field. A text that the server refuses stays in it, so that the user can correct it. If the text was changed
 * elsewhere, only Enter saves the field: leaving it must not replace a text that the user may not have seen.
 */
function Field({ label, value, lines = false, save, close }: FieldProps): JSX.Element {
  const { trans } = usePanelContext();
  const [text, setText] = useState(value);
  const [saving, setSaving] = useState(false);
  // The text that someone else has saved since the field was opened.
  const [present, setPresent] = useState<string | null>(null);
  const before = present ?? value;
  const submit = async (byKey: boolean) => {
    if (saving || (present !== null && !byKey)) return;
    setSaving(true);
    const saved = text === before || (await save(text, before));
    if (saved === true) {
      close(byKey);
      return;
    }
    if (saved !== false) setPresent(saved);
    setSaving(false);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    // The arrow keys move the cursor in the field, not the focus in the table.
    event.stopPropagation();
    if (event.key === "Escape") close(true);
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    void submit(true);
  };
  const field = {
    className: "fd-cell-field",
    "aria-label": label,
    "aria-invalid": present !== null,
    title: present === null ? undefined : trans.__("Changed elsewhere. Enter saves your text, Escape discards it."),
    value: text,
    autoFocus: true,
    readOnly: saving,
    onChange: (event: ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) => setText(event.target.value),
    onKeyDown,
    onBlur: () => void submit(false),
  };
  return lines ? <textarea rows={1} {...field} /> : <input {...field} />;
}
