/** Tests of the tab "GPUs" from the user's point of view. */

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

test("the tab of GPUs shows the quota and the holders", async () => {
  await harness.receiveState("state");
  await harness.click("tab", "GPUs");
  for (const part of ["3 of 16", "0 of 3 free", "1 server waits", "grace"]) expect(text()).toContain(part);
  expect(await harness.violations()).toEqual([]);
});

test("the tab of GPUs shows the use of the home, before and after it is measured", async () => {
  await harness.receiveState("state-empty");
  await harness.click("tab", "GPUs");
  expect(text()).toContain("Home10.0 GiB · 10.0 GiB free");
  await harness.receiveState("state");
  expect(text()).toContain("Home2.4 GiB / 10.0 GiB · 7.6 GiB free");
  expect(harness.get("meter", "Home").getAttribute("aria-valuenow")).toBe("24");
  expect(await harness.violations()).toEqual([]);
});

test("a home that is nearly full is a warning on every tab, until files are deleted", async () => {
  await harness.receiveState("state");
  const { resources } = example<wire.ResourcesMessage>("resources");
  await harness.receive({ kind: "resources", resources });
  const said = "Your home is nearly full (9.5 GiB of 10.0 GiB used, 512 MiB free)";
  expect(text()).toContain(said);
  await harness.click("tab", "GPUs");
  expect(text()).toContain(said);
  expect(harness.root.querySelector(".fd-meter-text[data-warn]")?.textContent).toContain("9.5 GiB / 10.0 GiB");
  expect(await harness.violations()).toEqual([]);
  await harness.receiveState("state");
  expect(text()).not.toContain(said);
});

test("without a limit nothing is shown about the home", async () => {
  await harness.receiveState("state-no-hub");
  await harness.click("tab", "GPUs");
  expect(text()).not.toContain("Home");
});

test("while the hub or the server is down, the panel does not say that there are no GPUs", async () => {
  await harness.receiveState("state-empty");
  await harness.click("tab", "GPUs");
  expect(text()).toContain("The hub offers no GPUs");
  await harness.receive({ kind: "clusters", hub: { ...HUB, error: "the hub does not answer" }, clusters: [] });
  expect(text()).not.toContain("The hub offers no GPUs");
  expect(text()).toContain("The GPUs are unknown until the hub answers");
  await harness.receive({ kind: "clusters", hub: HUB, clusters: [] });
  await harness.loseConnection();
  expect(text()).not.toContain("The hub offers no GPUs");
  expect(text()).toContain("The GPUs are unknown until the server answers");
  expect(await harness.violations()).toEqual([]);
});
