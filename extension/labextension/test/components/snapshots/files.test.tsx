/** Tests of the browser of files in a snapshot, and of restoring files, from the user's point of view. */

import { act } from "react";

import { ROW } from "../../../src/components/snapshots/files";
import { PAGE } from "../../../src/state/pages";
import type * as wire from "../../../src/wire";
import type { Harness } from "../../harness";
import { FOLDER, NEWEST, openTab, refuses, RESTORED, rest } from "./tab";

const EXISTS = "~/data/labels.csv exists, and nothing is overwritten.";

let harness: Harness;
afterEach(() => {
  harness.close();
});

const text = () => harness.root.textContent;
const rows = () => [...harness.root.querySelectorAll(".fd-run-open")].map((row) => row.textContent);
const requests = (name: string) => harness.requests.filter((one) => one.startsWith(name));
const crumbs = () => [...harness.root.querySelectorAll(".fd-crumbs button")].map(({ textContent }) => textContent);
const dialogs = () => harness.choose.mock.calls as unknown as [string, string, string[]][];
const restored = () =>
  requests("restoreFile").map((one) => JSON.parse(one.slice(one.indexOf("{"))) as wire.RestoreFile);

async function click(name: string | RegExp): Promise<void> {
  await harness.click("button", name);
  await rest();
}

/** Open the newest snapshot, and in it the folder of the example. */
async function openFolder(answers: Harness["answers"] = {}): Promise<void> {
  const files = (_: string, path: string) =>
    path ? { ...FOLDER, path } : { ...FOLDER, path, total: 1, entries: home };
  harness = await openTab({ snapshotFiles: files, ...answers });
  await click(/^before cleaning/);
  await click(/^data\//);
}

const home: wire.SnapshotEntry[] = [{ ...(FOLDER.entries[0] as wire.SnapshotEntry), name: "data" }];

test("folders are fetched when they are opened, and the path leads back", async () => {
  await openFolder();
  expect(requests("snapshotFiles")).toEqual([
    `snapshotFiles "${NEWEST.id}" "" 0 ${PAGE}`,
    `snapshotFiles "${NEWEST.id}" "data" 0 ${PAGE}`,
  ]);
  expect(crumbs()).toEqual(["Home", "data"]);
  expect(document.activeElement?.textContent).toBe("data");
  expect(rows().map((row) => row.replace(/\d{4}-.*/, ""))).toEqual([
    "raw/",
    "clicks.csvdeleted since20 KiB · ",
    "labels.csvchanged since1 KiB · ",
    "latin-\ufffd5 B · ",
    "latestdiffers now",
    "notes.md311 B · ",
  ]);
  expect(await harness.violations()).toEqual([]);
  await click("Home");
  expect(crumbs()).toEqual(["Home"]);
  expect(rows()).toHaveLength(1);
});

test("a deleted file is restored to its place, and the list shows that it exists again", async () => {
  await openFolder();
  await click(/^clicks.csv/);
  expect(harness.get("button", /^clicks.csv/).getAttribute("aria-pressed")).toBe("true");
  harness.answers["snapshotFiles"] = () => ({
    ...FOLDER,
    entries: FOLDER.entries.map((one) => ({ ...one, now: "same" as const })),
  });
  await click("Restore clicks.csv");
  expect(requests("restoreFile")[0]).toContain(NEWEST.id);
  expect(restored()).toEqual([{ path: "data/clicks.csv", to: null, keep_both: false }]);
  expect(text()).toContain("Restored: ~/data/clicks.csv");
  expect(harness.refreshFiles).toHaveBeenCalledTimes(1);
  expect(rows()[1]).not.toContain("deleted");
  await click("Home");
  expect(text()).not.toContain("Restored");
  expect(await harness.violations()).toEqual([]);
});

test("if the file exists, a dialog offers to keep both, and nothing else is sent without an answer", async () => {
  await openFolder({ restoreFile: refuses("exists", EXISTS) });
  await click(/^labels.csv/);
  await click("Restore labels.csv");
  expect(dialogs()[0]).toEqual([
    "“labels.csv” exists",
    `${EXISTS} It was changed after the one in the snapshot. “Keep both” restores it under a name with the time of the snapshot.`,
    ["Restore into folder…", "Keep both"],
  ]);
  expect(restored()).toHaveLength(1);
  harness.choose.mockImplementation(() => {
    harness.answers["restoreFile"] = () => ({ ...RESTORED, path: "~/data/labels.2026.csv" });
    return Promise.resolve(1);
  });
  await click("Restore labels.csv");
  expect(restored().at(-1)).toEqual({ path: "data/labels.csv", to: null, keep_both: true });
  expect(text()).toContain("Restored: ~/data/labels.2026.csv");
});

test("the dialog leads to another folder", async () => {
  await openFolder({ restoreFile: refuses("exists", EXISTS) });
  await click(/^notes.md/);
  harness.choose.mockResolvedValueOnce(0);
  harness.ask.mockResolvedValueOnce("old");
  await click("Restore notes.md");
  expect(dialogs()[0]?.[1]).toContain("It has the size and the time of the one in the snapshot.");
  expect(restored().map(({ to, keep_both }) => [to, keep_both])).toEqual([
    [null, false],
    ["old", false],
  ]);
});

test("a folder is restored to a place that the user names", async () => {
  await openFolder();
  await click("Restore data to…");
  expect(restored()).toEqual([]);
  harness.ask.mockResolvedValueOnce("restored");
  await click("Restore data to…");
  expect(restored()).toEqual([{ path: "data", to: "restored", keep_both: false }]);
});

test("a file that cannot be restored is reported by the panel, with the remedy", async () => {
  await openFolder({ restoreFile: refuses("failed", "There is no room left on the disk. Remove files.") });
  await click(/^clicks.csv/);
  await click("Restore clicks.csv");
  expect(harness.root.querySelector(".fd-notes [role=alert]")?.textContent).toContain("Remove files.");
  expect(harness.choose).not.toHaveBeenCalled();
  expect(text()).not.toContain("Restored");
});

test("a file whose name is not UTF-8 cannot be restored by itself", async () => {
  await openFolder();
  await click(/^latin/);
  expect(harness.get("group", "Restore latin-\ufffd").textContent).toContain("Restore its folder.");
  expect(() => harness.get("button", "Restore latin-\ufffd")).toThrow();
});

test("the home itself is not restored, and the tab says what to do", async () => {
  harness = await openTab();
  await click(/^before cleaning/);
  expect(text()).toContain("Choose a file to restore it, or open a folder.");
  expect(() => harness.get("button", /^Restore/)).toThrow();
});

test("a folder with many files is fetched and rendered part by part", async () => {
  const many = (_: string, path: string, offset: number, limit: number): wire.SnapshotFolder => ({
    ...FOLDER,
    path,
    offset,
    total: 100_000,
    entries: Array.from({ length: limit }, (_each, n) => ({
      ...(home[0] as wire.SnapshotEntry),
      name: `f${offset + n}`,
    })),
  });
  harness = await openTab({ snapshotFiles: many });
  await click(/^before cleaning/);
  expect(rows().length).toBeLessThan(30);
  act(() => harness.get("button", /^f0/).focus());
  const box = harness.root.querySelector(".fd-runs");
  await act(async () => {
    box?.dispatchEvent(new KeyboardEvent("keydown", { key: "End", bubbles: true }));
    await Promise.resolve();
  });
  await rest();
  expect(document.activeElement?.textContent).toContain("f99999/");
  expect(requests("snapshotFiles").map((one) => one.split(" ")[3])).toEqual(["0", "99950"]);
});

test("a part that cannot be read stays reported while other parts are fetched, and is fetched again", async () => {
  const part = (_: string, path: string, offset: number, limit: number): wire.SnapshotFolder => {
    const entries = Array.from({ length: limit }, (_each, n) => ({
      ...(home[0] as wire.SnapshotEntry),
      name: `f${n}`,
    }));
    return { ...FOLDER, path, offset, total: 3 * PAGE, entries };
  };
  const fails = refuses("failed", "The hub does not answer.");
  harness = await openTab({
    snapshotFiles: (...all: Parameters<typeof part>) => (all[2] > PAGE ? fails() : part(...all)),
  });
  await click(/^before cleaning/);
  const box = harness.root.querySelector(".fd-runs") as HTMLElement;
  const offsets = () => requests("snapshotFiles").map((one) => Number(one.split(" ")[3]));
  const scroll = async (row: number) => {
    await act(async () => {
      box.scrollTop = row * ROW;
      box.dispatchEvent(new Event("scroll"));
      await Promise.resolve();
    });
    await rest();
  };
  await scroll(3 * PAGE - 12);
  await scroll(PAGE + 10);
  expect(offsets()).toEqual([0, 2 * PAGE, PAGE]);
  expect(text()).toContain("The hub does not answer.");
  harness.answers["snapshotFiles"] = part;
  await click("Try again");
  expect(text()).not.toContain("The hub does not answer.");
  await scroll(3 * PAGE - 12);
  expect(offsets().slice(3)).toEqual([PAGE, 2 * PAGE]);
});

test("an empty folder and one that cannot be read are told apart", async () => {
  harness = await openTab({ snapshotFiles: () => ({ ...FOLDER, entries: [], total: 0 }) });
  await click(/^before cleaning/);
  expect(text()).toContain("This folder is empty");
  harness.close();
  harness = await openTab({ snapshotFiles: refuses("failed", "The repository of your snapshots is damaged.") });
  await click(/^before cleaning/);
  expect(text()).toContain("The repository of your snapshots is damaged.");
  harness.answers["snapshotFiles"] = () => FOLDER;
  await click("Try again");
  expect(rows()).toHaveLength(6);
  expect(text()).not.toContain("damaged");
});
