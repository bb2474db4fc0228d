/** Tests of the panel from the user's point of view. */

import { RequestError } from "../../src/net/requestError";
import type * as wire from "../../src/wire";
import { example, HUB } from "../examples";
import { Harness } from "../harness";

let harness: Harness;

beforeEach(async () => {
  harness = new Harness();
  await harness.open();
});
afterEach(() => {
  harness.close();
});

const text = () => harness.root.textContent;

describe("clusters", () => {
  test("an empty list names the first step", async () => {
    await harness.receiveState("state-empty");
    expect(text()).toContain("No cluster yet");
    await harness.click("button", "Start a cluster");
    expect(harness.get("form", "Start a cluster")).toBeTruthy();
  });

  test("the form sends its values and closes", async () => {
    await harness.receiveState("state-empty");
    await harness.click("button", "Start a cluster");
    await harness.type("textbox", "Name", "exam");
    await harness.type("number", "Workers", "3");
    harness.answers["startCluster"] = () => example<wire.Cluster>("cluster");
    await harness.click("button", "Start");
    const request = { name: "exam", workers: 3, profile: "cpu", ranks: null, backend: null, wait: false };
    expect(harness.requests).toEqual([`startCluster ${JSON.stringify(request)}`]);
    expect(text()).not.toContain("More options");
  });

  test("an invalid form cannot be sent, and says why", async () => {
    await harness.receiveState("state-empty");
    await harness.click("button", "Start a cluster");
    await harness.type("number", "Workers", "17");
    expect(text()).toContain("room for 16 more");
    expect((harness.get("button", "Start") as HTMLButtonElement).disabled).toBe(true);
  });

  test("a refused request is shown, the form stays, and the note can be dismissed", async () => {
    await harness.receiveState("state-empty");
    await harness.click("button", "Start a cluster");
    const problem = example<wire.Problem>("problem-quota");
    harness.answers["startCluster"] = () => Promise.reject(new RequestError(problem, 429));
    await harness.click("button", "Start");
    expect(text()).toContain(problem.message);
    expect(harness.get("form", "Start a cluster")).toBeTruthy();
    await harness.click("button", "Dismiss");
    expect(text()).not.toContain(problem.message);
  });

  test("profiles show their free GPUs", async () => {
    await harness.receiveState("state");
    await harness.click("button", "Start a cluster");
    await harness.type("combobox", "Profile", "rtx-2080-ti");
    expect(text()).toContain("0 of 3 GPUs free");
    expect(text()).toContain("2 requested GPUs are not free now.");
  });

  test("workers show their resource use", async () => {
    await harness.receiveState("state");
    const worker = harness.root.querySelector("[aria-label=main-w0]")?.textContent ?? "";
    for (const part of ["rank 0", "104 % · 8 cores", "2.3 GiB / 16.0 GiB", "87 %", "6.0 GiB / 11.0 GiB", "11 MiB/s"]) {
      expect(worker).toContain(part);
    }
    // A worker's server has no page to open, only an API.
    expect(harness.root.querySelectorAll('a[href^="/user/"]')).toHaveLength(0);
    expect(harness.root.querySelector("[aria-label=exam-w0]")?.textContent).toContain("idle, stops at");
  });

  test.each([
    ["clusters-starting", "place 2 in the queue"],
    ["clusters-failed", "Spawn failed"],
    ["clusters-scaling", "the notebook takes it up when its cell has ended"],
    ["clusters-dead-rank", "rank 1 is dead; the next cell starts it again"],
    ["clusters-hub-away", "the hub does not answer; it may be restarting."],
  ])("%s says %p", async (name, said) => {
    await harness.receiveState("state");
    await harness.receive(example<wire.ClustersMessage>(name));
    expect(text()).toContain(said);
    expect(await harness.violations()).toEqual([]);
  });

  test("without a hub the panel offers a cluster on this machine", async () => {
    await harness.receiveState("state-no-hub");
    expect(text()).not.toContain("Start a cluster");
    await harness.click("button", "Insert training cell");
    expect(harness.insertTraining).toHaveBeenCalledTimes(1);
  });

  test("without a hub no form appears that could not be closed", async () => {
    await harness.receiveState("state-no-hub");
    await harness.receive({ kind: "clusters", hub: null, clusters: [] });
    await harness.navigate({ show: "start", run: "" });
    expect(harness.get("button", "Insert training cell")).toBeTruthy();
    expect(text()).toContain("No cluster yet");
  });

  test("the focus moves into the form, and back to the button that opened it", async () => {
    await harness.receiveState("state-empty");
    await harness.click("button", "Start a cluster");
    expect(document.activeElement).toBe(harness.get("textbox", "Name"));
    await harness.click("button", "Cancel");
    expect(document.activeElement).toBe(harness.get("button", "Start a cluster"));
  });

  test("a cluster whose ranks are all dead is not ready", async () => {
    await harness.receiveState("state");
    const message = example<wire.ClustersMessage>("clusters-dead-rank");
    const status = () => harness.root.querySelector(".fd-cluster .fd-status")?.getAttribute("data-status");
    await harness.receive(message);
    expect(status()).toBe("ready");
    for (const { ranks } of message.clusters.flatMap(({ workers }) => workers)) {
      for (const rank of ranks) Object.assign(rank, { alive: false });
    }
    await harness.receive(message);
    expect(status()).toBe("dead");
  });

  test.each([
    ["clusters-starting", "info"],
    ["clusters-scaling", "info"],
    ["clusters-dead-rank", null],
  ])("the note of %s has the kind %p: progress is no warning", async (name, kind) => {
    await harness.receiveState("state");
    await harness.receive(example<wire.ClustersMessage>(name));
    expect(harness.root.querySelector(".fd-note")?.getAttribute("data-kind")).toBe(kind);
  });

  test("while the hub or the server is down, the panel does not say that there is no cluster", async () => {
    await harness.receiveState("state-empty");
    await harness.receive({ kind: "clusters", hub: { ...HUB, error: "the hub does not answer" }, clusters: [] });
    expect(text()).not.toContain("No cluster yet");
    expect(text()).toContain("The clusters are unknown until the hub answers");
    await harness.receive({ kind: "clusters", hub: HUB, clusters: [] });
    expect(text()).toContain("No cluster yet");
    await harness.loseConnection();
    expect(text()).not.toContain("No cluster yet");
    expect(text()).toContain("The clusters are unknown until the server answers");
  });

  test("the form does not call its own cluster's name taken while the cluster starts", async () => {
    await harness.receiveState("state-empty");
    await harness.click("button", "Start a cluster");
    harness.answers["startCluster"] = () => new Promise(() => undefined);
    await harness.click("button", "Start");
    const { hub } = example<wire.ClustersMessage>("clusters");
    await harness.receive({ kind: "clusters", hub, clusters: [{ ...example<wire.Cluster>("cluster"), name: "main" }] });
    expect(harness.get("textbox", "Name").getAttribute("aria-invalid")).not.toBe("true");
    expect(harness.root.querySelector(".fd-field-error")).toBeNull();
  });

  test("a worker's log is followed while it is visible", async () => {
    await harness.receiveState("state");
    await harness.click("button", "Log of main-w0");
    expect(harness.watches.at(-1)?.logs.map(({ worker }) => worker)).toEqual(["main-w0"]);
    expect(harness.get("log", "Log of main-w0").textContent).toBe("Waiting for the log…");
    const { part } = example<wire.LogMessage>("log-worker");
    await harness.receive({ kind: "log", part });
    expect(harness.get("log", "Log of main-w0").textContent).toContain(part.text);
    await harness.click("button", "Log of main-w0");
    expect(harness.watches.at(-1)?.logs).toEqual([]);
  });
});

test.each([
  [0, "TypeError: Failed to fetch", "does not answer. The page tries again.Start a cluster"],
  [403, "Forbidden", "Log in, then reload the page"],
  [404, "Not Found", "Install the package there"],
])("a lost connection is shown (%p), and known clusters stay", async (status, message, said) => {
  await harness.receiveState("state");
  harness.answers["state"] = () => Promise.reject(new RequestError({ code: "failed", message, runs: [] }, status));
  await harness.loseConnection();
  expect(text()).toContain(said);
  expect(text()).toContain("main-w0");
});

test("a hidden panel watches nothing", async () => {
  await harness.receiveState("state");
  await harness.click("tab", "Runs");
  expect(harness.watches.at(-1)?.runs).not.toEqual([]);
  await harness.open(false);
  expect(harness.watches.at(-1)?.runs).toEqual([]);
});
