/** The form that starts a cluster: its fields, their validation and the request. */

import type { Cluster, Profile, Resources, StartCluster } from "../wire";

/** The fields as typed; an empty field means the hub's default. */
export interface StartForm {
  readonly name: string;
  readonly workers: string;
  readonly profile: string;
  readonly ranks: string;
  readonly backend: string;
  readonly wait: boolean;
}

/** The error of a field, and the maximum of a number. */
export interface FieldError {
  readonly kind: "name" | "taken" | "number" | "quota" | "ranks";
  readonly most: number | null;
}

export type FieldErrors = Partial<Record<"name" | "workers" | "ranks", FieldError>>;

const NAME = /^[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?$/;

/** Return an unused name: main, main-2 ... */
export function freeName(clusters: readonly Cluster[]): string {
  const taken = new Set(clusters.filter((cluster) => cluster.state !== "failed").map((cluster) => cluster.name));
  for (let count = 1; ; count += 1) {
    const name = count === 1 ? "main" : `main-${count}`;
    if (!taken.has(name)) return name;
  }
}

/** Return the initial form. */
export function emptyForm(resources: Resources, clusters: readonly Cluster[]): StartForm {
  const profile = resources.profiles[0]?.name ?? "";
  return { name: freeName(clusters), workers: "2", profile, ranks: "", backend: "", wait: false };
}

/** Return a whole number of at least 1, or null. */
export function count(text: string): number | null {
  return /^[1-9][0-9]{0,4}$/.test(text.trim()) ? Number(text) : null;
}

/** Return how many more workers the user may start; null if the hub does not say. */
export function workersLeft({ quota }: Resources): number | null {
  return quota.workers_max === null ? null : Math.max(0, quota.workers_max - quota.workers);
}

export function profileOf(form: StartForm, resources: Resources): Profile | undefined {
  return resources.profiles.find((profile) => profile.name === form.profile);
}

/** Return the errors of a form; empty if it can be sent. */
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

/** Return the number of requested GPUs beyond the free ones; the workers that need them have to queue. */
export function gpusShort(form: StartForm, resources: Resources): number {
  const profile = profileOf(form, resources);
  const workers = count(form.workers);
  if (!profile || workers === null || profile.gpus_free === null) return 0;
  return Math.max(0, workers * profile.gpus - profile.gpus_free);
}

/** Return the request of a valid form. */
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
