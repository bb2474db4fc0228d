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
  /** Save the text, and return whether that succeeded. */
  save: (value: string) => Promise<boolean>;
  children: ReactNode;
}

/** A text with a button that replaces it by a field. Enter saves the field, Escape restores the text. */
export function Editable({ label, tabIndex, disabled, children, ...props }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const [editing, setEditing] = useState(false);
  // The button takes the focus back from a field that was closed with a key.
  const [focus, setFocus] = useState(false);
  const close = (byKey: boolean) => {
    setFocus(byKey);
    setEditing(false);
  };
  if (editing) return <Field label={label} {...props} close={close} />;
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
        onClick={() => setEditing(true)}
      >
        ✎
      </button>
    </>
  );
}

interface FieldProps extends Omit<Props, "tabIndex" | "disabled" | "children"> {
  close: (byKey: boolean) => void;
}

/** The field. A text that the server refuses stays in it, so that the user can correct it. */
function Field({ label, value, lines = false, save, close }: FieldProps): JSX.Element {
  const [text, setText] = useState(value);
  const [saving, setSaving] = useState(false);
  const submit = async (byKey: boolean) => {
    if (saving) return;
    setSaving(true);
    if (text === value || (await save(text))) close(byKey);
    else setSaving(false);
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
    value: text,
    autoFocus: true,
    readOnly: saving,
    onChange: (event: ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) => setText(event.target.value),
    onKeyDown,
    onBlur: () => void submit(false),
  };
  return lines ? <textarea rows={1} {...field} /> : <input {...field} />;
}
