/** The form with which the user starts a cluster. */

import type { TranslationBundle } from "@jupyterlab/translation";
import { useId, useState, type ComponentProps, type FormEvent, type InputHTMLAttributes, type JSX } from "react";

import {
  emptyForm,
  gpusShort,
  profileOf,
  requestOf,
  validate,
  type FieldError,
  type StartForm as Form,
} from "../../state/forms";
import type { Cluster, Profile, Resources } from "../../wire";
import { usePanelContext } from "../context";
import { Note, Select, type Option } from "../parts";

interface Props {
  resources: Resources;
  clusters: readonly Cluster[];
  onDone: () => void;
}

export function StartForm({ resources, clusters, onDone }: Props): JSX.Element {
  const { model, trans } = usePanelContext();
  const [form, setForm] = useState(() => emptyForm(resources, clusters));
  const [busy, setBusy] = useState(false);
  // While the request is under way, the list may already contain the cluster that it starts.
  const errors = validate(form, resources, busy ? [] : clusters);
  const profile = profileOf(form, resources);
  const change = (part: Partial<Form>) => setForm({ ...form, ...part });
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    const started = await model.attempt(() => model.api.startCluster(requestOf(form)));
    setBusy(false);
    if (started) onDone();
  };
  return (
    <form
      className="fd-form"
      aria-label={trans.__("Start a cluster")}
      onSubmit={(event) => void submit(event)}
      onKeyDown={(event) => event.key === "Escape" && onDone()}
    >
      <Field
        label={trans.__("Name")}
        value={form.name}
        error={errors.name}
        autoFocus
        set={(name) => change({ name })}
      />
      <Field
        label={trans.__("Workers")}
        type="number"
        value={form.workers}
        error={errors.workers}
        set={(workers) => change({ workers })}
      />
      {resources.profiles.length > 0 && (
        <Choice
          label={trans.__("Profile")}
          value={form.profile}
          options={resources.profiles.map((one) => [one.name, profileText(trans, one)])}
          set={(name) => change({ profile: name })}
        />
      )}
      <Waiting form={form} resources={resources} set={(wait) => change({ wait })} />
      <details>
        <summary>{trans.__("More options")}</summary>
        <Field
          label={trans.__("Ranks on each worker")}
          type="number"
          value={form.ranks}
          placeholder={String(profile?.ranks ?? "")}
          error={errors.ranks}
          set={(ranks) => change({ ranks })}
        />
        <Choice
          label={trans.__("Backend")}
          value={form.backend}
          options={[["", trans.__("the default")], ...resources.backends.map((name): Option => [name, name])]}
          set={(backend) => change({ backend })}
        />
      </details>
      <div className="fd-row">
        <button type="submit" className="fd-main" disabled={busy || Object.keys(errors).length > 0}>
          {trans.__("Start")}
        </button>
        <button type="button" onClick={onDone}>
          {trans.__("Cancel")}
        </button>
      </div>
    </form>
  );
}

interface FieldProps extends InputHTMLAttributes<HTMLInputElement> {
  label: string;
  error: FieldError | undefined;
  set: (value: string) => void;
}

function Field({ label, error, set, ...input }: FieldProps): JSX.Element {
  const { trans } = usePanelContext();
  const id = useId();
  return (
    <div className="fd-field">
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        type="text"
        min={input.type === "number" ? 1 : undefined}
        aria-invalid={error !== undefined}
        aria-describedby={error && `${id}-error`}
        onChange={(event) => set(event.target.value)}
        {...input}
      />
      {error && (
        <span id={`${id}-error`} className="fd-field-error">
          {errorText(trans, error)}
        </span>
      )}
    </div>
  );
}

/** Return the message that explains the error of a field to the user. It is shown below the field. */
function errorText(trans: TranslationBundle, { kind, most }: FieldError): string {
  if (kind === "name") return trans.__("1 to 24 lower-case letters, digits and inner hyphens");
  if (kind === "taken") return trans.__("a cluster has this name already; choose another one");
  if (kind === "ranks") return trans.__("at most %1 on each worker", most ?? 0);
  if (kind === "quota")
    return most ? trans.__("your quota has room for %1 more", most) : trans.__("your quota is used up");
  return trans.__("a whole number, 1 or more");
}

/** Describe a profile and its free GPUs in one line. */
function profileText(trans: TranslationBundle, profile: Profile): string {
  const { gpus_free: free, gpus_total: total } = profile;
  const gpus = free !== null && total !== null ? trans.__("%1 of %2 GPUs free", free, total) : "";
  return [profile.name, profile.description, gpus].filter(Boolean).join(" · ");
}

function Choice({ label, ...select }: ComponentProps<typeof Select>): JSX.Element {
  const id = useId();
  return (
    <div className="fd-field">
      <label htmlFor={id}>{label}</label>
      <Select id={id} {...select} />
    </div>
  );
}

interface WaitingProps {
  form: Form;
  resources: Resources;
  set: (wait: boolean) => void;
}

function Waiting({ form, resources, set }: WaitingProps): JSX.Element | null {
  const { trans } = usePanelContext();
  const short = gpusShort(form, resources);
  if (!profileOf(form, resources)?.gpus) return null;
  return (
    <>
      {short > 0 && (
        <Note>{trans._n("%1 requested GPU is not free now.", "%1 requested GPUs are not free now.", short)}</Note>
      )}
      <label className="fd-check">
        <input type="checkbox" checked={form.wait} onChange={(event) => set(event.target.checked)} />
        {trans.__("Queue until the GPUs are free")}
      </label>
    </>
  );
}
