/** Tests of the tab "Endpoints" from the user's point of view. */

import { act } from "react";

import { RequestError } from "../../src/net/requestError";
import type * as wire from "../../src/wire";
import { example, HUB } from "../examples";
import { Harness } from "../harness";

const message = example<wire.EndpointsMessage>("endpoints");

let harness: Harness;

beforeEach(async () => {
  harness = new Harness();
  await harness.open();
});
afterEach(() => {
  harness.close();
});

const text = () => harness.root.textContent;
const card = (name: string) => harness.get("section", `Endpoint ${name}`);
const cards = () => [...harness.root.querySelectorAll(".fd-endpoint h3")].map((title) => title.textContent);
const buttons = (name: string) => [...card(name).querySelectorAll("button")].map((button) => button.textContent);
const statusOf = (name: string) => card(name).querySelector(".fd-status")?.textContent;

/** Open the tab with the endpoints of an example of the state, or with these. */
async function show(endpoints?: readonly wire.Endpoint[], state = "state"): Promise<void> {
  await harness.receiveState(state);
  if (endpoints) await harness.receive({ kind: "endpoints", endpoints: [...endpoints] });
  await harness.click("tab", "Endpoints");
}

function named(name: string): wire.Endpoint {
  const found = message.endpoints.find((one) => one.name === name);
  if (!found) throw new Error(`there is no endpoint ${name}`);
  return found;
}

test("until the endpoints arrive, the tab says that they are being loaded", async () => {
  await harness.click("tab", "Endpoints");
  expect(text()).toContain("Loading…");
  expect(text()).not.toContain("No endpoint");
  await harness.receive({ kind: "clusters", hub: HUB, clusters: [] });
  expect(text()).toContain("Loading…");
  await harness.receive({ kind: "endpoints", endpoints: [] });
  expect(text()).toContain("No endpoint yet");
});

test("the arrow keys reach the tab, which has the focus then", async () => {
  await harness.receiveState("state");
  await harness.click("tab", "GPUs");
  for (const [key, name] of [
    ["ArrowLeft", "Endpoints"],
    ["ArrowRight", "GPUs"],
    ["ArrowLeft", "Endpoints"],
  ] as const) {
    const selected = harness.root.querySelector("[role=tab][aria-selected=true]");
    act(() => void selected?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })));
    expect(document.activeElement).toBe(harness.get("tab", name));
    expect(harness.get("tab", name).getAttribute("aria-selected")).toBe("true");
  }
  expect(cards()).toEqual(["iris"]);
});

test("without endpoints, the tab names the first step, and requests nothing", async () => {
  await show(undefined, "state-empty");
  for (const part of ["No endpoint yet", "fd.save_model", "%serve NAME"]) expect(text()).toContain(part);
  expect(cards()).toEqual([]);
  expect(harness.requests).toEqual([]);
  expect(await harness.violations()).toEqual([]);
});

test("without a hub, the tab does not name a step that would fail", async () => {
  await show(undefined, "state-no-hub");
  expect(text()).toContain("There is no hub");
  expect(text()).not.toContain("%serve");
});

test("while the hub or the server is down, the tab does not say that there is no endpoint", async () => {
  await show(undefined, "state-empty");
  await harness.receive({ kind: "clusters", hub: { ...HUB, error: "the hub does not answer" }, clusters: [] });
  expect(text()).not.toContain("No endpoint yet");
  expect(text()).toContain("The endpoints are unknown until the hub answers");
  await harness.receive({ kind: "clusters", hub: HUB, clusters: [] });
  await harness.loseConnection();
  expect(text()).not.toContain("No endpoint yet");
  expect(text()).toContain("The endpoints are unknown until the server answers");
  expect(await harness.violations()).toEqual([]);
});

test("known endpoints stay while the hub or the server is down", async () => {
  await show();
  await harness.receive({ kind: "clusters", hub: { ...HUB, error: "the hub does not answer" }, clusters: [] });
  expect(cards()).toEqual(["iris"]);
  await harness.loseConnection();
  expect(cards()).toEqual(["iris"]);
});

test("an endpoint shows its version, its address and the requests of the last minute", async () => {
  await show();
  for (const part of ["iris:3", "Requests/s12.5", "Latency (p95)8.25 ms", "Errors2", "Requests in the last minute"]) {
    expect(card("iris").textContent).toContain(part);
  }
  expect(statusOf("iris")).toBe("ready");
  const address = card("iris").querySelector("code")?.textContent;
  expect(address).toBe("https://ada.hub.example.org/user/ada/serve-iris/v2/models/iris/infer");
  expect(harness.get("group", "Requests to iris in the last minute")).toBeTruthy();
  expect(harness.requests).toEqual([]);
  expect(await harness.violations()).toEqual([]);
});

test.each([
  [0.016_666, 0, null, "Requests/s0.0167", "Latency (p95)–", "Errors0"],
  [0, 0, null, "Requests/s0", "Latency (p95)–", "Errors0"],
  [333.333, 12_000, 1234, "Requests/s333", "Latency (p95)1.234 s", "Errors12,000"],
])("the figures have few digits: %p requests/s", async (rate, errors, latency, ...said) => {
  await show([{ ...named("iris"), requests_per_second: rate, errors, p95_ms: latency }]);
  for (const part of said) expect(card("iris").textContent).toContain(part);
});

test("several endpoints in all states are shown, and only ready models take requests", async () => {
  await show(message.endpoints);
  const states = cards().map((name) => [name, statusOf(name)]);
  expect(states).toEqual(message.endpoints.map(({ name, state }) => [name, state]));
  for (const name of ["iris", "calls", "shipped"]) expect(buttons(name)).toEqual(["Send a request", "Stop"]);
  for (const name of ["app", "cells", "mute", "old", "pulled"]) {
    expect(buttons(name)).toEqual(["Stop"]);
    expect(card(name).textContent).not.toContain("Requests/s");
  }
  expect(card("cells").textContent).toContain("vision/cells:1");
  expect(card("cells").querySelector("code")?.textContent).toBe(
    "http://localhost/user/ada/serve-cells/v2/models/cells/infer",
  );
  expect((harness.get("button", "Stop old") as HTMLButtonElement).disabled).toBe(true);
  expect(await harness.violations()).toEqual([]);
});

test("an endpoint that does not answer has no figures, and says so", async () => {
  await show([named("silent")]);
  expect(card("silent").textContent).toContain("The endpoint does not answer");
  expect(card("silent").querySelector(".fd-facts")?.textContent).toBe("silent");
  expect(card("silent").textContent).not.toContain("Requests/s");
});

describe("an image", () => {
  const facts = (name: string) => card(name).querySelector(".fd-facts")?.textContent;
  const address = (name: string) => card(name).querySelector("code")?.textContent;

  test("is shown with its model, which takes requests", async () => {
    await show([named("shipped")]);
    expect(facts("shipped")).toBe("iris:3 from registry.example.org/lab/iris:3");
    expect(address("shipped")).toBe("http://localhost/user/ada/serve-shipped/v2/models/iris/infer");
    expect(card("shipped").textContent).toContain("Requests/s2");
    expect(card("shipped").querySelector("a")).toBeNull();
  });

  test.each([
    ["pulled", "starting", false],
    ["mute", "ready", true],
  ])("%p has no model until its endpoint is ready and answers", async (name, state, isSilent) => {
    await show([named(name)]);
    expect(statusOf(name)).toBe(state);
    expect(facts(name)).toBe(named(name).image);
    expect(address(name)).toBe(`http://localhost/user/ada/serve-${name}/`);
    // Browsers cannot open the address of a model.
    expect(card(name).querySelector("a")).toBeNull();
    const said = card(name).querySelector("[role=note]")?.textContent;
    expect(said).toBe(
      isSilent ? "The endpoint does not answer, so its model and its requests are unknown." : undefined,
    );
  });

  test("stays in the registry when its endpoint is stopped", async () => {
    await show([named("mute")]);
    await harness.click("button", "Stop mute");
    expect(harness.confirm.mock.lastCall).toContain("Programs can no longer call it. The image stays in the registry.");
  });
});

test("the server of a command is a link, and its command is text", async () => {
  await show([{ ...named("app"), command: "python <b>app</b>.py" }]);
  expect(card("app").querySelector(".fd-facts")?.innerHTML).toBe("python &lt;b&gt;app&lt;/b&gt;.py");
  const link = harness.get("link", "http://localhost/user/ada/serve-app/") as HTMLAnchorElement;
  expect([link.href, link.target, link.rel]).toEqual([link.textContent, "_blank", "noopener noreferrer"]);
});

describe("stopping", () => {
  test("the user is asked first, and may refuse", async () => {
    await show(message.endpoints);
    harness.confirm.mockResolvedValue(false);
    await harness.click("button", "Stop iris");
    await harness.click("button", "Stop app");
    expect(harness.confirm.mock.calls).toEqual([
      ["Stop endpoint iris?", "Programs can no longer call it. The model stays in the model store.", "Stop"],
      ["Stop endpoint app?", "Programs can no longer call it.", "Stop"],
    ]);
    expect(harness.requests).toEqual([]);
    expect(statusOf("iris")).toBe("ready");
  });

  test("the endpoint is shown as stopping until the server has stopped it", async () => {
    await show();
    let stopped: (value: boolean) => void = jest.fn();
    harness.answers["stopEndpoint"] = () => new Promise<boolean>((resolve) => (stopped = resolve));
    await harness.click("button", "Stop iris");
    expect(harness.requests).toEqual(['stopEndpoint "iris"']);
    expect(statusOf("iris")).toBe("stopping");
    expect((harness.get("button", "Stop iris") as HTMLButtonElement).disabled).toBe(true);
    await harness.receive({ kind: "endpoints", endpoints: [] });
    stopped(true);
    await harness.receive();
    expect(cards()).toEqual([]);
  });

  test("the reason is shown if the server cannot stop it", async () => {
    await show();
    const problem: wire.Problem = { code: "failed", message: "the hub did not stop it", runs: [] };
    harness.answers["stopEndpoint"] = () => Promise.reject(new RequestError(problem, 409));
    await harness.click("button", "Stop iris");
    expect(harness.root.querySelector("[role=alert]")?.textContent).toContain("the hub did not stop it");
    expect(statusOf("iris")).toBe("ready");
  });
});
