/** Tests of the questions that the panel asks before it stops a cluster or scales it down. */

import { RequestError } from "../../src/net/requestError";
import type * as wire from "../../src/wire";
import { example } from "../examples";
import { Harness } from "../harness";

let harness: Harness;

beforeEach(async () => {
  harness = new Harness();
  await harness.open();
});
afterEach(() => {
  harness.close();
});

test("a stop asks for confirmation if a run is active, or if it is unknown whether ranks hold variables", async () => {
  await harness.receiveState("state");
  harness.confirm.mockResolvedValueOnce(false);
  await harness.click("button", "Stop exam");
  const [, body] = harness.confirm.mock.calls[0] as unknown as [string, string];
  expect(body).toContain("No kernel leads it now. Its ranks may hold variables");
  expect(harness.requests).toEqual([]);
  await harness.click("button", "Stop exam");
  await harness.click("button", "Stop main");
  expect(harness.confirm).toHaveBeenCalledTimes(3);
  expect(harness.requests).toEqual(['stopCluster "exam" false', 'stopCluster "main" true']);
});

test.each([
  ["clusters-starting", "Stop big"],
  ["clusters-failed", "Dismiss big"],
])("a cluster that has no ranks yet stops without a question: %s", async (name, button) => {
  await harness.receiveState("state");
  await harness.receive(example<wire.ClustersMessage>(name));
  await harness.click("button", button);
  expect(harness.confirm).not.toHaveBeenCalled();
  expect(harness.requests).toHaveLength(1);
});

test("a cluster whose ranks are all dead stops without a question", async () => {
  await harness.receiveState("state");
  const message = example<wire.ClustersMessage>("clusters-dead-rank");
  for (const { ranks } of message.clusters.flatMap(({ workers }) => workers)) {
    for (const rank of ranks) Object.assign(rank, { alive: false });
  }
  await harness.receive({ ...message, clusters: message.clusters.map((one) => ({ ...one, runs: [] })) });
  await harness.click("button", "Stop main");
  expect(harness.confirm).not.toHaveBeenCalled();
  expect(harness.requests).toEqual(['stopCluster "main" false']);
});

test("a cluster that may hold variables asks before it stops, although it is idle", async () => {
  await harness.receiveState("state");
  const message = example<wire.ClustersMessage>("clusters");
  await harness.receive({ ...message, clusters: message.clusters.map((one) => ({ ...one, runs: [] })) });
  harness.confirm.mockResolvedValueOnce(false);
  await harness.click("button", "Stop main");
  expect(harness.requests).toEqual([]);
  await harness.click("button", "Stop main");
  expect(harness.requests).toEqual(['stopCluster "main" false']);
});

test("a stop without confirmation does nothing", async () => {
  await harness.receiveState("state");
  harness.confirm.mockResolvedValue(false);
  await harness.click("button", "Stop main");
  expect(harness.requests).toEqual([]);
});

test("a run that the page does not know yet needs confirmation as well", async () => {
  await harness.receiveState("state");
  harness.answers["stopCluster"] = (_: string, runs: boolean) => {
    if (!runs) throw new RequestError(example<wire.Problem>("problem-runs-go-on"), 409);
    return null;
  };
  await harness.click("button", "Stop exam");
  expect(harness.requests).toEqual(['stopCluster "exam" false', 'stopCluster "exam" true']);
});

test("scaling sends the number of workers, and asks first if ranks would be lost", async () => {
  await harness.receiveState("state");
  harness.answers["scaleCluster"] = () => example<wire.Cluster>("cluster");
  await harness.click("button", "Scale main");
  await harness.type("number", "Workers", "1");
  harness.confirm.mockResolvedValueOnce(false);
  await harness.click("button", "Apply");
  expect(harness.requests).toEqual([]);
  await harness.type("number", "Workers", "4");
  await harness.click("button", "Apply");
  expect(harness.confirm).toHaveBeenCalledTimes(1);
  expect(harness.requests).toEqual([`scaleCluster "main" ${JSON.stringify(example("scale-cluster"))}`]);
  expect(document.activeElement).toBe(harness.get("button", "Scale main"));
});

test("scaling down asks first if it is unknown whether ranks hold variables", async () => {
  await harness.receiveState("state");
  const message = example<wire.ClustersMessage>("clusters");
  const unknown = message.clusters.map(({ workers, ...rest }) => ({
    ...rest,
    lead: null,
    workers: workers.map((worker) => ({ ...worker, ranks: [] })),
  }));
  await harness.receive({ ...message, clusters: unknown });
  await harness.click("button", "Scale main");
  await harness.type("number", "Workers", "1");
  harness.confirm.mockResolvedValueOnce(false);
  await harness.click("button", "Apply");
  const [, body] = harness.confirm.mock.calls[0] as unknown as [string, string];
  expect(body).toContain("may hold variables");
  expect(harness.requests).toEqual([]);
});
