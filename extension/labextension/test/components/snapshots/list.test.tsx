/** Tests of the list of snapshots and of the form that takes one, from the user's point of view. */

import { date, preciseClock, timeOfDay } from "../../../src/format";
import type * as wire from "../../../src/wire";
import { example } from "../../examples";
import type { Harness } from "../../harness";
import { LISTED, MIDDLE, NEWEST, OLDEST, openTab, refuses, RESTORED, rest } from "./tab";

const TAKE = "Take a snapshot";
const FULL = example<wire.SnapshotJob>("snapshot-job-failed").problem?.message ?? "";

let harness: Harness;
afterEach(() => {
  harness.close();
});

const text = () => harness.root.textContent;
const rows = () => [...harness.root.querySelectorAll(".fd-snapshot")].map((row) => row.textContent);
const requests = (name: string) => harness.requests.filter((one) => one.startsWith(name));
const status = () => harness.root.querySelector("form [role=status]")?.textContent;
const time = ({ time }: wire.Snapshot) => timeOfDay(new Date(time * 1000));
const day = ({ time }: wire.Snapshot) => date(new Date(time * 1000));

test("snapshots are listed by day, and only the newest day is open and has its changes", async () => {
  harness = await openTab();
  expect(rows()).toEqual([
    `before cleaning${time(NEWEST)}12 files changed · +1 MiB`,
    `${time(MIDDLE)}12 files changed · +1 MiB`,
  ]);
  expect(requests("snapshotChanges")).toEqual([NEWEST, MIDDLE].map(({ id }) => `snapshotChanges "${id}"`));
  const older = harness.get("button", new RegExp(`^${day(OLDEST)}`));
  expect(older.getAttribute("aria-expanded")).toBe("false");
  await harness.click("button", new RegExp(`^${day(OLDEST)}`));
  await rest();
  expect(rows()[2]).toBe(`${time(OLDEST)}the oldest snapshot`);
  await harness.click("button", new RegExp(`^${day(NEWEST)}`));
  expect(rows()).toHaveLength(1);
  expect(await harness.violations()).toEqual([]);
});

test("without snapshots, the tab says what a snapshot is", async () => {
  harness = await openTab({ snapshots: () => ({ ...LISTED, snapshots: [], total: 0 }) });
  expect(text()).toContain("No snapshot yet");
  expect(harness.get("button", TAKE)).toBeTruthy();
  expect(await harness.violations()).toEqual([]);
});

test("a hub without snapshots, and a server without a hub, are said in one sentence", async () => {
  harness = await openTab({ snapshots: refuses("unknown", "This hub has no snapshots.") });
  expect(text()).toContain("This hub has no snapshots.");
  expect(harness.root.querySelector("form, [role=alert]")).toBeNull();
  harness.close();
  harness = await openTab({}, "state-no-hub");
  expect(text()).toContain("There is no hub. Snapshots are at a hub");
  expect(requests("snapshots")).toEqual([]);
});

test("an error of the service is shown with its remedy, and the list can be loaded again", async () => {
  harness = await openTab({ snapshots: refuses("failed", "The hub does not answer. Try again in a minute.") });
  expect(harness.root.querySelector("[role=alert]")?.textContent).toContain("Try again in a minute.");
  harness.answers["snapshots"] = () => LISTED;
  harness.get("button", "Try again").focus();
  await harness.click("button", "Try again");
  await rest();
  expect(rows()).toHaveLength(2);
  expect(document.activeElement?.getAttribute("role")).toBe("tabpanel");
  harness.answers["snapshots"] = refuses("failed", "The repository is locked.");
  await harness.click("button", "Refresh");
  await rest();
  expect(harness.root.querySelector("[role=alert]")?.textContent).toContain("The repository is locked.");
  expect(rows()).toHaveLength(2);
});

test("changes that cannot be read do not hide the list, and are not requested again and again", async () => {
  harness = await openTab({ snapshotChanges: refuses("failed", "The repository is locked.") });
  expect(text()).toContain("It is not known what has changed in each snapshot: The repository is locked.");
  expect(rows()).toHaveLength(2);
  expect(requests("snapshotChanges")).toHaveLength(1);
});

test("an automatic snapshot that could not be taken is reported", async () => {
  const page = example<wire.SnapshotPage>("snapshots-problem");
  harness = await openTab({ snapshots: () => page });
  const note = harness.root.querySelector(".fd-tabpanel > [role=note]")?.textContent;
  expect(note).toBe(`The last automatic snapshot was not taken: ${page.problem}`);
  expect(harness.get("button", TAKE)).toBeTruthy();
  expect(await harness.violations()).toEqual([]);
});

test("a snapshot is taken with a message, and the list is loaded again", async () => {
  harness = await openTab();
  await harness.type("textbox", "Message (optional)", "before cleaning");
  await harness.click("button", TAKE);
  await rest();
  expect(requests("takeSnapshot")).toEqual(['takeSnapshot {"message":"before cleaning"}']);
  expect(status()).toBe("The snapshot is taken.");
  expect((harness.get("textbox", "Message (optional)") as HTMLInputElement).value).toBe("");
  expect(requests("snapshots ")).toHaveLength(2);
});

test("files that could not be read are named", async () => {
  const done = example<wire.SnapshotJob>("snapshot-job-unread");
  harness = await openTab({ takeSnapshot: () => done });
  await harness.click("button", TAKE);
  await rest();
  expect(harness.root.querySelector("form [role=note]")?.textContent).toBe(done.notices[0]);
});

test("a snapshot that cannot be taken keeps its message, and the panel shows the remedy", async () => {
  harness = await openTab({ takeSnapshot: refuses("failed", FULL) });
  await harness.type("textbox", "Message (optional)", "before cleaning");
  await harness.click("button", TAKE);
  await rest();
  expect(harness.root.querySelector(".fd-notes [role=alert]")?.textContent).toContain("Leave out large folders");
  expect((harness.get("textbox", "Message (optional)") as HTMLInputElement).value).toBe("before cleaning");
  expect(status()).toBe("");
});

test("while a snapshot is taken, the button keeps the focus and does nothing", async () => {
  let finish: (job: wire.SnapshotJob) => void = () => undefined;
  harness = await openTab({ takeSnapshot: () => new Promise<wire.SnapshotJob>((resolve) => (finish = resolve)) });
  const button = harness.get("button", TAKE) as HTMLButtonElement;
  button.focus();
  await harness.click("button", TAKE);
  await harness.click("button", TAKE);
  expect(requests("takeSnapshot")).toHaveLength(1);
  expect([button.disabled, button.getAttribute("aria-disabled")]).toEqual([false, "true"]);
  expect(status()).toContain("Taking a snapshot");
  finish(RESTORED);
  await rest();
  expect(status()).toBe("The snapshot is taken.");
  expect(document.activeElement).toBe(button);
});

test("a snapshot that another page takes is followed to its end", async () => {
  const taking = example<wire.SnapshotPage>("snapshots-taking");
  let finish: (job: wire.SnapshotJob) => void = () => undefined;
  harness = await openTab({
    snapshots: () => taking,
    snapshotJob: () => new Promise<wire.SnapshotJob>((resolve) => (finish = resolve)),
  });
  expect(requests("snapshotJob")).toEqual(['snapshotJob "1"']);
  expect(status()).toContain("Taking a snapshot");
  harness.answers["snapshots"] = () => LISTED;
  finish(RESTORED);
  await rest();
  expect(rows()).toHaveLength(2);
});

test("while another page takes a snapshot, the message in the form stays there for the next one", async () => {
  let finish: (job: wire.SnapshotJob) => void = () => undefined;
  harness = await openTab({
    takeSnapshot: refuses("failed", "a snapshot is being taken already"),
    snapshotJob: () => new Promise<wire.SnapshotJob>((resolve) => (finish = resolve)),
  });
  harness.answers["snapshots"] = () => ({ ...LISTED, taking: "7" });
  await harness.type("textbox", "Message (optional)", "before cleaning");
  await harness.click("button", TAKE);
  await rest();
  expect(requests("snapshotJob")).toEqual(['snapshotJob "7"']);
  expect(status()).toContain("Taking a snapshot");
  harness.answers["snapshots"] = () => LISTED;
  finish(RESTORED);
  await rest();
  expect(status()).toBe("The snapshot is taken.");
  expect((harness.get("textbox", "Message (optional)") as HTMLInputElement).value).toBe("before cleaning");
});

test("of very many snapshots, the page says how many are not shown", async () => {
  const many = Array.from({ length: 1000 }, (_, n) => ({ ...OLDEST, id: String(n) }));
  harness = await openTab({ snapshots: () => ({ ...LISTED, snapshots: many, total: 1200 }) });
  expect(text()).toContain("200 older snapshots are not shown.");
  expect(() => harness.get("button", /^Show older/)).toThrow();
});

test("a list that is being loaded is not requested again", async () => {
  harness = await openTab();
  harness.answers["snapshots"] = () => new Promise(() => undefined);
  await harness.click("button", "Refresh");
  await harness.click("button", "Loading…");
  expect(requests("snapshots ")).toHaveLength(2);
});

test("older snapshots are loaded when the user asks for them", async () => {
  harness = await openTab({ snapshots: () => ({ ...LISTED, total: 250 }) });
  await harness.click("button", "Show older snapshots (247)");
  await rest();
  expect(requests("snapshots ")).toEqual(["snapshots 100", "snapshots 200"]);
});

test("the known list is shown at once when the user comes back to the tab", async () => {
  harness = await openTab();
  await harness.click("tab", "GPUs");
  harness.answers["snapshots"] = () => new Promise(() => undefined);
  await harness.click("tab", "Snapshots");
  expect(rows()).toHaveLength(2);
  expect(requests("snapshotChanges")).toHaveLength(2);
});

test("the row of the snapshot that the user has left takes the focus, and not that of an earlier visit", async () => {
  harness = await openTab();
  await harness.click("button", new RegExp(`^${time(MIDDLE)}`));
  await rest();
  expect(harness.root.querySelector("h3")?.textContent).toBe(preciseClock(MIDDLE.time, new Date()));
  await harness.click("button", "‹ All snapshots");
  await rest();
  expect(document.activeElement?.textContent).toContain(time(MIDDLE));
  harness.get("tab", "GPUs").focus();
  await harness.click("tab", "GPUs");
  await harness.click("tab", "Snapshots");
  expect(document.activeElement).toBe(harness.get("tab", "GPUs"));
});
