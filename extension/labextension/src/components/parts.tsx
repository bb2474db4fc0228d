/** Small stateless components that the panel and the dashboard in the notebook share. */

import type { JSX, ReactNode } from "react";

import { percent, share } from "../format";
import { useTranslator, type Translator } from "../i18n";

/** The state of a cluster or a run. `label` replaces the name of the state. */
export function Status({ of, label }: { of: string; label?: string | false }): JSX.Element {
  const trans = useTranslator();
  return (
    <span className="fd-status" data-status={of}>
      {label || stateLabel(trans, of)}
    </span>
  );
}

/** Return the translated label for the state of a cluster, worker, run or rank. */
export function stateLabel(trans: Translator, state: string): string {
  const labels = new Map([
    ["starting", trans.__("starting")],
    ["ready", trans.__("ready")],
    ["stopping", trans.__("stopping")],
    ["failed", trans.__("failed")],
    ["running", trans.__("running")],
    ["finished", trans.__("finished")],
    ["interrupted", trans.__("interrupted")],
    ["lost", trans.__("lost")],
    ["done", trans.__("done")],
    ["stopped", trans.__("stopped")],
    ["dead", trans.__("dead")],
  ]);
  return labels.get(state) ?? state;
}

interface MeterProps {
  label: string;
  text: string;
  value: number | null;
  total: number | null;
  /** Whether the value needs the user's attention. */
  warn?: boolean;
}

/** A value. If the total is known, a bar shows the value's share of the total. */
export function Meter(props: MeterProps): JSX.Element {
  const part = share(props.value, props.total);
  return (
    <div className="fd-meter">
      <span className="fd-muted">{props.label}</span>
      <span className="fd-meter-text" data-warn={props.warn || undefined}>
        {props.text}
      </span>
      {part !== null && <Bar role="meter" label={props.label} text={props.text} value={part * 100} />}
    </div>
  );
}

/** A progress bar for a loop or for the start of a worker. `value` is a percentage, or null if it is unknown. */
export function Progress({ label, text, value }: { label: string; text: string; value: number | null }): JSX.Element {
  return (
    <div>
      <div className="fd-bar-text">
        <span>{label}</span>
        <span className="fd-muted">{text}</span>
      </div>
      <Bar role="progressbar" label={label} text={text} value={value} />
    </div>
  );
}

function Bar(props: { role: "meter" | "progressbar"; label: string; text: string; value: number | null }): JSX.Element {
  return (
    <div
      className="fd-track"
      role={props.role}
      aria-label={props.label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={props.value === null ? undefined : Math.round(props.value)}
      aria-valuetext={props.text}
    >
      <div className="fd-fill" style={{ width: percent(props.value ?? 0).replace(" ", "") }} />
    </div>
  );
}

/** The value of an option in a menu, and the text that the user sees. */
export type Option = readonly [value: string, text: string];

interface SelectProps {
  id?: string;
  label?: string;
  value: string;
  options: readonly Option[];
  set: (value: string) => void;
}

export function Select({ id, label, value, options, set }: SelectProps): JSX.Element {
  return (
    <select id={id} value={value} aria-label={label} onChange={(event) => set(event.target.value)}>
      {options.map(([name, text]) => (
        <option key={name} value={name}>
          {text}
        </option>
      ))}
    </select>
  );
}

/** A table that the user can scroll in both directions with the pointer or the keyboard. */
export function Table(props: { label: string; scroller: string; heads: string[]; children: ReactNode }): JSX.Element {
  return (
    <div className="fd-scroll" tabIndex={0} role="group" aria-label={props.scroller}>
      <table className="fd-table" aria-label={props.label}>
        <thead>
          <tr>
            {props.heads.map((head) => (
              <th key={head} scope="col">
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{props.children}</tbody>
      </table>
    </div>
  );
}

/** A message in place of content that is missing or being loaded. It may say what the user has to do first. */
export function Empty({ title, children }: { title: string; children?: ReactNode }): JSX.Element {
  return (
    <div className="fd-empty">
      <p className="fd-empty-title">{title}</p>
      {children}
    </div>
  );
}

interface NoteProps {
  error?: boolean;
  /** Whether the message only says what is going on, so that it is not in the colour of a warning. */
  info?: boolean;
  children: ReactNode;
}

/** A message to the user, by default a warning. Screen readers announce an error immediately. */
export function Note({ error, info, children }: NoteProps): JSX.Element {
  return (
    <div className="fd-note" data-kind={error ? "error" : info ? "info" : undefined} role={error ? "alert" : "note"}>
      {children}
    </div>
  );
}

interface ToggleProps {
  open: boolean;
  setOpen: (open: boolean) => void;
  /** The accessible name. It distinguishes this button from other buttons with the same text. */
  label: string;
  children: ReactNode;
}

/** A small button that shows or hides another element. */
export function Toggle({ open, setOpen, label, children }: ToggleProps): JSX.Element {
  return (
    <button type="button" className="fd-small" aria-expanded={open} aria-label={label} onClick={() => setOpen(!open)}>
      {children}
    </button>
  );
}
