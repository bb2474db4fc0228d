/** Tests of the streams that endpoints score, in the tab "Endpoints". */

import type * as wire from "../../src/wire";
import { example } from "../examples";
import { Harness } from "../harness";

const { endpoints } = example<wire.EndpointsMessage>("endpoints");

let harness: Harness;

beforeEach(async () => {
  harness = new Harness();
  await harness.open();
});
afterEach(() => {
  harness.close();
});

const card = (name: string) => harness.get("section", `Endpoint ${name}`);
const stream = (name: string) => harness.get("group", `Stream of ${name}`);
const badge = (name: string) => stream(name).querySelector<HTMLElement>(".fd-status");
const note = (name: string) => stream(name).querySelector("[role=note]")?.textContent;

function named(name: string): wire.Endpoint {
  const found = endpoints.find((one) => one.name === name);
  if (!found) throw new Error(`there is no endpoint ${name}`);
  return found;
}

const calls = named("calls");

/** Open the tab with these endpoints. */
async function show(...shown: wire.Endpoint[]): Promise<void> {
  await harness.receiveState("state");
  await harness.receive({ kind: "endpoints", endpoints: shown });
  await harness.click("tab", "Endpoints");
}

/** Show the endpoint `calls` with changes of its stream. */
const showCalls = (changes: Partial<wire.EndpointStream>) =>
  show({ ...calls, stream: { ...(calls.stream as wire.EndpointStream), ...changes } });

test("a stream shows where records come from and go to, the lag, the throughput and the dead letters", async () => {
  await show(calls);
  for (const part of ["Fromnats:///calls", "Tonats:///decisions.{label}", "Lag12 records", "Records/s812"]) {
    expect(stream("calls").textContent).toContain(part);
  }
  expect(stream("calls").textContent).toContain("Dead letters3");
  expect(badge("calls")?.textContent).toBe("scoring");
  expect(note("calls")).toBeUndefined();
  expect(await harness.violations()).toEqual([]);
});

test("a stream says why no record is scored", async () => {
  await show(named("alarms"));
  expect([badge("alarms")?.textContent, badge("alarms")?.dataset["status"]]).toEqual(["not scoring", "interrupted"]);
  expect(note("alarms")).toBe("the broker nats://nats.example.org:4222 does not answer; trying again");
  expect(stream("alarms").textContent).toContain("Lagunknown");
  expect(await harness.violations()).toEqual([]);
});

test.each([
  [{ lag: 0, records_per_second: 0 }, "Lag0 records", "Records/s0"],
  [{ lag: 1, records_per_second: 0.016_666 }, "Lag1 record", "Records/s0.0167"],
  [{ lag: 12_500, records_per_second: 12_345.6 }, "Lag12,500 records", "Records/s12,300"],
])("the figures of a stream have few digits: %p", async (changes, ...said) => {
  await showCalls(changes);
  for (const part of said) expect(stream("calls").textContent).toContain(part);
});

test("dead letters are marked, if there are any", async () => {
  const marked = () => [...stream("calls").querySelectorAll("[data-warn]")].map((one) => one.textContent);
  await showCalls({ dead_letters: 3 });
  expect(marked()).toEqual(["3"]);
  await showCalls({ dead_letters: 0 });
  expect(marked()).toEqual([]);
});

test("the texts of a stream are no HTML", async () => {
  await showCalls({ source: "nats:///<b>calls</b>", problem: "<b>down</b>" });
  expect(stream("calls").querySelector("b")).toBeNull();
  expect(stream("calls").textContent).toContain("<b>down</b>");
});

test("no stream is shown for endpoints that score none, or that are not ready", async () => {
  await show(named("iris"), { ...calls, state: "stopping" });
  expect(harness.root.querySelector(".fd-stream")).toBeNull();
  expect(card("iris").textContent).not.toContain("Lag");
});

test("the user is told that the stream ends before the endpoint is stopped", async () => {
  await show(calls);
  harness.confirm.mockResolvedValue(false);
  await harness.click("button", "Stop calls");
  const body = "Programs can no longer call it. Its stream is no longer scored. The model stays in the model store.";
  expect(harness.confirm.mock.lastCall).toEqual(["Stop endpoint calls?", body, "Stop"]);
});
