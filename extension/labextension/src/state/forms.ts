/** The state of the form that starts a cluster. It validates the fields and makes the request. */

import type { Cluster, Profile, Resources, StartCluster } from "../wire";

/** The fields as the user has typed them. If `profile`, `ranks` or `backend` is empty, the hub's default is used. */
export interface StartForm {
  readonly name: string;
  readonly workers: string;
  readonly profile: string;
  readonly ranks: string;
  readonly backend: string;
  readonly wait: boolean;
}

/** The kind of a field's error. `most` is the maximum of a number, or null if there is no maximum. */
export interface FieldError {
  readonly kind: "name" | "taken" | "number" | "quota" | "ranks";
  readonly most: number | null;
}

export type FieldErrors = Partial<Record<"name" | "workers" | "ranks", FieldError>>;

const NAME = /^[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?$/;

/** Return the first unused name among main, main-2, main-3 and so on. */
export function freeName(clusters: readonly Cluster[]): string {
  const taken = new Set(clusters.filter((cluster) => cluster.state !== "failed").map((cluster) => cluster.name));
  for (let count = 1; ; count += 1) {
    const name = count === 1 ? "main" : `main-${count}`;
    if (!taken.has(name)) return name;
  }
}

/** Return the form with its initial values. */
export function emptyForm(resources: Resources, clusters: readonly Cluster[]): StartForm {
  const profile = resources.profiles[0]?.name ?? "";
  return { name: freeName(clusters), workers: "2", profile, ranks: "", backend: "", wait: false };
}

/** Parse a whole number from 1 to 99999. Return null for any other text. */
export function count(text: string): number | null {
  return /^[1-9][0-9]{0,4}$/.test(text.trim()) ? Number(text) : null;
}

/** Return how many more workers the user may start, or null if the hub sets no limit. */
export function workersLeft({ quota }: Resources): number | null {
  return quota.workers_max === null ? null : Math.max(0, quota.workers_max - quota.workers);
}

export function profileOf(form: StartForm, resources: Resources): Profile | undefined {
  return resources.profiles.find((profile) => profile.name === form.profile);
}

/** Return the errors of a form by field. There are none if the form can be sent. */
export function validate(form: StartForm, resources: Resources, clusters: readonly Cluster[]): FieldErrors {
  const errors: FieldErrors = {};
  const taken = clusters.some((cluster) => cluster.name === form.name && cluster.state !== "failed");
  if (!NAME.test(form.name)) errors.name = { kind: "name", most: null };
  else if (taken) errors.name = { kind: "taken", most: null };
  const [workers, left] = [count(form.workers), workersLeft(resources)];
  if (workers === null) errors.workers = { kind: "number", most: left };
  else if (left !== null && workers > left) errors.workers = { kind: "quota", most: left };
  const [ranks, most] = [count(form.ranks), resources.quota.ranks_per_worker_max];
  if (form.ranks.trim() && ranks === null) errors.ranks = { kind: "number", most };
  else if (ranks !== null && most !== null && ranks > most) errors.ranks = { kind: "ranks", most };
  return errors;
}

/** Return how many of the requested GPUs are not free. Workers that need them would have to wait in the queue. */
export function gpusShort(form: StartForm, resources: Resources): number {
  const profile = profileOf(form, resources);
  const workers = count(form.workers);
  if (!profile || workers === null || profile.gpus_free === null) return 0;
  return Math.max(0, workers * profile.gpus - profile.gpus_free);
}

/** Return the request that a valid form sends to the server. */
export function requestOf(form: StartForm): StartCluster {
  return {
    name: form.name,
    workers: count(form.workers) ?? 1,
    profile: form.profile || null,
    ranks: count(form.ranks),
    backend: form.backend || null,
    wait: form.wait,
  };
}
