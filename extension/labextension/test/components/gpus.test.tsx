/** Tests of the tab "GPUs" from the user's point of view. */

import { HUB } from "../examples";
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
