/** Tests of what the panel shows about Dask on clusters and workers. */

import type * as wire from "../../src/wire";
import { example } from "../examples";
import { Harness } from "../harness";

let harness: Harness;
let message: wire.ClustersMessage;

beforeEach(async () => {
  harness = new Harness();
  message = example<wire.ClustersMessage>("clusters-dask");
  await harness.open();
  await harness.receiveState("state");
});
afterEach(() => {
  harness.close();
});

const main = () => message.clusters[0] as wire.Cluster;
const card = () => harness.get("section", "Cluster main");
const line = () => card().querySelector(".fd-bar-text")?.textContent;
const bars = () => card().querySelectorAll("[role=progressbar]");
const worker = (name: string) => harness.get("group", `Dask on ${name}`);
const note = (name: string) => worker(name).querySelector("[role=note]");

/** Show the example with changes of the progress, and of Dask on each worker. */
async function show(progress: Partial<wire.DaskProgress>, changes: Partial<wire.DaskWorker> = {}): Promise<void> {
  Object.assign(main().dask as wire.DaskProgress, progress);
  for (const { dask } of main().workers) Object.assign(dask as wire.DaskWorker, changes);
  await harness.receive(message);
}

test("a cluster shows the progress of Dask's tasks", async () => {
  await show({});
  expect(line()).toBe("Dask120 of 400 tasks, 8 running, 2 failed");
  const bar = harness.get("progressbar", "Dask");
  expect(bar.getAttribute("aria-valuenow")).toBe("31");
  expect(bar.getAttribute("aria-valuetext")).toBe("120 of 400 tasks, 8 running, 2 failed");
  expect(await harness.violations()).toEqual([]);
});

test.each([
  [{ done: 400, failed: 0 }, "Dask400 tasks done"],
  [{ done: 398, failed: 2 }, "Dask398 tasks done, 2 failed"],
  [{ tasks: 1, done: 1, failed: 0 }, "Dask1 task done"],
  [{ tasks: 0, done: 0, failed: 0 }, "Daskno tasks yet"],
])("without tasks to compute there is no bar: %p", async (progress, said) => {
  await show(progress);
  expect(line()).toBe(said);
  expect(bars()).toHaveLength(0);
});

test("a worker shows its tasks and results", async () => {
  await show({});
  expect(worker("main-w0").textContent).toBe(
    "Dask tasks6 running, 24 waiting, 1,061 doneDask results1.2 GiB / 16.0 GiB",
  );
  expect(worker("main-w1").textContent).toContain("Dask results10.0 GiB / 16.0 GiBOn disk5.0 GiB");
  expect(worker("main-w0").querySelectorAll("[role=meter]")).toHaveLength(1);
});

test("a worker with little memory left has a warning", async () => {
  await show({});
  expect(note("main-w0")).toBeNull();
  expect(note("main-w1")?.textContent).toBe("Dask begins no further task here, because little memory is left.");
  expect(note("main-w1")?.getAttribute("data-kind")).toBeNull();
});

test("tasks that wait for a training cell are no warning", async () => {
  await show({ failed: 0 }, { paused: "training", running: 0 });
  expect(line()).toBe("Dask120 of 400 tasks, waiting for a training cell");
  expect(note("main-w0")?.textContent).toBe("Dask's tasks wait until the training cell ends.");
  expect(note("main-w0")?.getAttribute("data-kind")).toBe("info");
  expect(await harness.violations()).toEqual([]);
});

test("without Dask nothing about it is shown", async () => {
  await harness.receive(example<wire.ClustersMessage>("clusters"));
  expect(harness.root.textContent).not.toContain("Dask");
  await show({});
  expect(harness.get("section", "Cluster exam").textContent).not.toContain("Dask");
});

test("of many workers, Dask is shown when the user expands one", async () => {
  const [first] = main().workers as [wire.Worker];
  main().workers = Array.from({ length: 9 }, (_, index) => ({ ...first, name: `main-w${index}` }));
  await show({});
  expect(card().querySelector(".fd-dask")).toBeNull();
  expect(line()).toContain("54 running");
  await harness.click("button", "More of main-w3");
  expect(worker("main-w3")).toBeTruthy();
});
