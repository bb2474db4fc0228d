import {
  count,
  emptyForm,
  validate,
  freeName,
  gpusShort,
  requestOf,
  workersLeft,
  type StartForm,
} from "../../src/state/forms";
import type * as wire from "../../src/wire";
import { example } from "../examples";

const { resources, clusters } = example<wire.State>("state");
const form: StartForm = { name: "new", workers: "2", profile: "cpu", ranks: "", backend: "", wait: false };

test("the initial form is valid: an unused name, two workers, the first profile", () => {
  expect(emptyForm(resources, [])).toMatchObject({ name: "main", workers: "2", profile: "cpu" });
  expect(freeName(clusters)).toBe("main-2");
  expect(validate(emptyForm(resources, clusters), resources, clusters)).toEqual({});
});

test.each(["", "Big One", "-a", "a-", "a".repeat(25), "ä"])("%p is not a valid name of a cluster", (name) => {
  expect(validate({ ...form, name }, resources, clusters).name?.kind).toBe("name");
});

test.each(["a", "big-1", "a".repeat(24), "2026"])("%p is a valid name of a cluster", (name) => {
  expect(validate({ ...form, name }, resources, clusters)).toEqual({});
});

test("a name is unique; the name of a failed cluster is free", () => {
  expect(validate({ ...form, name: "main" }, resources, clusters).name?.kind).toBe("taken");
  const failed = example<wire.ClustersMessage>("clusters-failed").clusters;
  expect(validate({ ...form, name: "big" }, resources, failed)).toEqual({});
});

test.each(["", "0", "-1", "1.5", "two", "1e3"])("%p is not a valid number of workers", (workers) => {
  expect(validate({ ...form, workers }, resources, clusters).workers?.kind).toBe("number");
});

test("the quota counts running workers", () => {
  expect(workersLeft(resources)).toBe(13);
  expect(validate({ ...form, workers: "13" }, resources, clusters)).toEqual({});
  expect(validate({ ...form, workers: "14" }, resources, clusters).workers).toEqual({ kind: "quota", most: 13 });
  const unlimited = { ...resources, quota: { ...resources.quota, workers_max: null } };
  expect(validate({ ...form, workers: "99" }, unlimited, clusters)).toEqual({});
});

test("the number of ranks is optional and limited", () => {
  expect(validate({ ...form, ranks: "9" }, resources, clusters).ranks).toEqual({ kind: "ranks", most: 8 });
  expect(validate({ ...form, ranks: "x" }, resources, clusters).ranks?.kind).toBe("number");
  expect(count(" 8 ")).toBe(8);
});

test("a shortage of GPUs is shown and is not an error, because workers can queue for them", () => {
  const gpu = { ...form, profile: "rtx-2080-ti" };
  expect(gpusShort(gpu, resources)).toBe(2);
  expect(gpusShort(form, resources)).toBe(0);
  expect(validate(gpu, resources, clusters)).toEqual({});
});

test("a form becomes the request in the examples", () => {
  const all = { name: "big", workers: "3", profile: "rtx-2080-ti", ranks: "1", backend: "torch", wait: true };
  expect(requestOf(all)).toEqual(example<wire.StartCluster>("start-cluster-all"));
  expect(requestOf({ ...form, name: "main" })).toEqual(example<wire.StartCluster>("start-cluster"));
});
