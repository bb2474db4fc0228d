/** The panel as users see it. */

import { RequestError } from "../src/net/requestError";
import type * as wire from "../src/wire";
import { example } from "./examples";
import { Harness } from "./harness";

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
  test("before the first one it says what to do", async () => {
    await harness.receiveState("state-empty");
    expect(text()).toContain("No cluster yet");
    await harness.click("button", "Start a cluster");
    expect(harness.get("form", "Start a cluster")).toBeTruthy();
  });

  test("the form sends what was chosen and closes", async () => {
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

  test("a form with a fault cannot be sent, and says why", async () => {
    await harness.receiveState("state-empty");
    await harness.click("button", "Start a cluster");
    await harness.type("number", "Workers", "17");
    expect(text()).toContain("room for 16 more");
    expect((harness.get("button", "Start") as HTMLButtonElement).disabled).toBe(true);
  });

  test("what the server refuses is shown, the form stays, and the note can be dismissed", async () => {
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

  test("free GPUs are shown with the profiles", async () => {
    await harness.receiveState("state");
    await harness.click("button", "Start a cluster");
    await harness.type("combobox", "Profile", "rtx-2080-ti");
    expect(text()).toContain("0 of 3 GPUs free");
    expect(text()).toContain("2 requested GPUs are not free now.");
  });

  test("workers with all that they use", async () => {
    await harness.receiveState("state");
    const worker = harness.root.querySelector("[aria-label=main-w0]")?.textContent ?? "";
    for (const part of ["rank 0", "104 % · 8 cores", "2.4 GB / 17.2 GB", "87 %", "6.4 GB / 11.8 GB", "11 MB/s"]) {
      expect(worker).toContain(part);
    }
    expect(harness.get("link", "Open main-w0").getAttribute("href")).toBe("/user/ada/main-w0/");
    expect(harness.root.querySelector("[aria-label=exam-w0]")?.textContent).toContain("idle, stops at");
  });

  test.each([
    ["clusters-starting", "place 2 in the queue"],
    ["clusters-failed", "The hub says: Spawn failed"],
    ["clusters-scaling", "the notebook takes it up when its cell has ended"],
    ["clusters-dead-rank", "rank 1 is dead"],
    ["clusters-hub-away", "no hub answers at"],
  ])("%s says %p", async (name, said) => {
    await harness.receiveState("state");
    await harness.receive(example<wire.ClustersMessage>(name));
    expect(text()).toContain(said);
    expect(await harness.violations()).toEqual([]);
  });

  test("without a hub nothing can be started here, and it says what can", async () => {
    await harness.receiveState("state-no-hub");
    expect(text()).not.toContain("Start a cluster");
    await harness.click("button", "Insert training cell");
    expect(harness.insertTraining).toHaveBeenCalledTimes(1);
  });

  test("without a hub no form comes that could not be left", async () => {
    await harness.receiveState("state-no-hub");
    await harness.receive({ kind: "clusters", hub: null, clusters: [] });
    await harness.navigate({ show: "start", run: "" });
    expect(harness.get("button", "Insert training cell")).toBeTruthy();
    expect(text()).toContain("No cluster yet");
  });

  test("the focus goes into the form, and back to what opened it", async () => {
    await harness.receiveState("state-empty");
    await harness.click("button", "Start a cluster");
    expect(document.activeElement).toBe(harness.get("textbox", "Name"));
    await harness.click("button", "Cancel");
    expect(document.activeElement).toBe(harness.get("button", "Start a cluster"));
  });

  test("stopping asks when a run is on, and not otherwise", async () => {
    await harness.receiveState("state");
    await harness.click("button", "Stop exam");
    expect(harness.confirm).not.toHaveBeenCalled();
    await harness.click("button", "Stop main");
    expect(harness.confirm).toHaveBeenCalledTimes(1);
    expect(harness.requests).toEqual(['stopCluster "exam" false', 'stopCluster "main" true']);
  });

  test("who does not want it stops nothing", async () => {
    await harness.receiveState("state");
    harness.confirm.mockResolvedValue(false);
    await harness.click("button", "Stop main");
    expect(harness.requests).toEqual([]);
  });

  test("a run that has just begun is asked about too", async () => {
    await harness.receiveState("state");
    harness.answers["stopCluster"] = (_: string, runs: boolean) => {
      if (!runs) throw new RequestError(example<wire.Problem>("problem-runs-go-on"), 409);
      return null;
    };
    await harness.click("button", "Stop exam");
    expect(harness.requests).toEqual(['stopCluster "exam" false', 'stopCluster "exam" true']);
  });

  test("scaling sends the number of workers", async () => {
    await harness.receiveState("state");
    await harness.click("button", "Scale main");
    await harness.type("number", "Workers", "4");
    harness.answers["scaleCluster"] = () => example<wire.Cluster>("cluster");
    await harness.click("button", "Apply");
    expect(harness.requests).toEqual([`scaleCluster "main" ${JSON.stringify(example("scale-cluster"))}`]);
    expect(document.activeElement).toBe(harness.get("button", "Scale main"));
  });

  test("a worker's log is followed while it is shown", async () => {
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

test("GPUs: the quota, and who holds what", async () => {
  await harness.receiveState("state");
  await harness.click("tab", "GPUs");
  for (const part of ["3 of 16", "0 of 3 free", "1 server waits", "grace"]) expect(text()).toContain(part);
  expect(await harness.violations()).toEqual([]);
});

test.each([
  [0, "TypeError: Failed to fetch", "does not answer. The page tries again. TypeError"],
  [403, "Forbidden", "Log in, then reload the page"],
  [404, "Not Found", "Install the package there"],
])("a connection that is lost is told (%p), and what was known stays", async (status, message, said) => {
  await harness.receiveState("state");
  harness.answers["state"] = () => Promise.reject(new RequestError({ code: "failed", message, runs: [] }, status));
  await harness.loseConnection();
  expect(text()).toContain(said);
  expect(text()).toContain("main-w0");
});

test("a panel that nobody sees has nothing watched", async () => {
  await harness.receiveState("state");
  await harness.click("tab", "Runs");
  expect(harness.watches.at(-1)?.runs).not.toEqual([]);
  await harness.open(false);
  expect(harness.watches.at(-1)?.runs).toEqual([]);
});
