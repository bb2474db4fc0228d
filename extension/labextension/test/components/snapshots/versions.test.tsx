/** Tests of the versions of a file, from the user's point of view. */

import { preciseClock } from "../../../src/format";
import type { Harness } from "../../harness";
import { FOLDER, MIDDLE, NEWEST, OLDEST, openTab, refuses, rest, VERSIONS } from "./tab";

let harness: Harness;
afterEach(() => {
  harness.close();
});

const text = () => harness.root.textContent;
const rows = () => [...harness.root.querySelectorAll(".fd-version strong")].map(({ textContent }) => textContent);
const requests = (name: string) => harness.requests.filter((one) => one.startsWith(name));
const taken = ({ time }: { time: number }) => preciseClock(time, new Date());

/** Show the versions of a file, as the file browser's context menu does. */
async function openVersions(answers: Harness["answers"] = {}): Promise<void> {
  harness = await openTab(answers);
  await harness.click("tab", "Clusters");
  await harness.navigate({ show: "versions", run: "", file: "work/data/labels.csv" });
  await rest();
}

test("the context menu shows in which snapshots a file changed, and then all that have it", async () => {
  await openVersions();
  expect(harness.get("tab", "Snapshots").getAttribute("aria-selected")).toBe("true");
  expect(requests("fileVersions")).toEqual(['fileVersions {"file":"work/data/labels.csv"}']);
  expect(harness.root.querySelector("h3")?.textContent).toBe("Versions of labels.csv");
  expect(rows()).toEqual([MIDDLE, OLDEST].map(taken));
  await harness.click("checkbox", "Show all 3 snapshots that have it");
  expect(rows()).toEqual([NEWEST, MIDDLE, OLDEST].map(taken));
  expect(text()).toContain("before cleaning1 KiB · as before");
  expect(await harness.violations()).toEqual([]);
});

test("a version is restored from its snapshot, and the list of the home is out of date then", async () => {
  await openVersions();
  await harness.click("button", `Restore labels.csv of ${taken(MIDDLE)}`);
  await rest();
  const sent = JSON.stringify({ path: "data/labels.csv", to: null, keep_both: false });
  expect(requests("restoreFile")).toEqual([`restoreFile "${MIDDLE.id}" ${sent}`]);
  expect(text()).toContain("Restored: ~/data/clicks.csv");
  expect(requests("fileVersions")).toHaveLength(2);
});

test("the versions of the same file are fetched again when the user asks for them again", async () => {
  await openVersions();
  await harness.navigate({ show: "versions", run: "", file: "work/data/labels.csv" });
  await rest();
  expect(requests("fileVersions")).toHaveLength(2);
});

test("a file of a snapshot leads to its versions and back", async () => {
  harness = await openTab();
  await harness.click("button", /^before cleaning/);
  await rest();
  await harness.click("button", /^notes.md/);
  await harness.click("button", "Earlier versions of notes.md");
  await rest();
  expect(requests("fileVersions")).toEqual(['fileVersions {"path":"notes.md"}']);
  expect(document.activeElement?.textContent).toBe("‹ Back");
  await harness.click("button", "‹ Back");
  await rest();
  expect(harness.root.querySelectorAll(".fd-run-open")).toHaveLength(FOLDER.total);
});

test("a file that no snapshot has, and one outside the home, are told apart", async () => {
  await openVersions({ fileVersions: () => ({ ...VERSIONS, versions: [], total: 0 }) });
  expect(text()).toContain("No snapshot has it");
  harness.close();
  await openVersions({
    fileVersions: refuses("invalid", "'/srv/x' is not in your home; snapshots have only what is there"),
  });
  expect(harness.root.querySelector("[role=alert]")?.textContent).toContain("is not in your home");
});

test("of very many versions, the newest are shown, and the page says so", async () => {
  await openVersions({ fileVersions: () => ({ ...VERSIONS, total: 503 }) });
  expect(text()).toContain("500 older snapshots are not shown.");
});
