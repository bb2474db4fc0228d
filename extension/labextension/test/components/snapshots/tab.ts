/** What the tests of the tab "Snapshots" share. */

import { act } from "react";

import { RequestError } from "../../../src/net/requestError";
import type * as wire from "../../../src/wire";
import { example } from "../../examples";
import { Harness } from "../../harness";

export const LISTED = example<wire.SnapshotPage>("snapshots");
export const FOLDER = example<wire.SnapshotFolder>("snapshot-folder");
export const VERSIONS = example<wire.SnapshotVersions>("snapshot-versions");
export const RESTORED = example<wire.SnapshotJob>("snapshot-job");
export const [NEWEST, MIDDLE, OLDEST] = LISTED.snapshots as [wire.Snapshot, wire.Snapshot, wire.Snapshot];

export class Refusal extends RequestError {
  constructor(code: wire.ProblemCode, message: string) {
    super({ code, message, runs: [] }, 409);
  }
}

/** Return a function that throws an error, as a request that the server refuses does. */
export function refuses(code: wire.ProblemCode, message: string): () => never {
  return () => {
    throw new Refusal(code, message);
  };
}

/** Return the panel with its tab of snapshots on a hub whose server gives the responses of the examples. */
export async function openTab(answers: Harness["answers"] = {}, state = "state"): Promise<Harness> {
  const harness = new Harness();
  const changes = example<wire.SnapshotChanges>("snapshot-changes");
  const oldest = example<wire.SnapshotChanges>("snapshot-changes-oldest");
  harness.answers = {
    snapshots: () => LISTED,
    snapshotChanges: (id: string) => (id === OLDEST.id ? oldest : { ...changes, id }),
    snapshotFiles: () => FOLDER,
    fileVersions: () => VERSIONS,
    restoreFile: () => RESTORED,
    takeSnapshot: () => ({ ...RESTORED, path: null }),
    snapshotJob: () => ({ ...RESTORED, path: null }),
    ...answers,
  };
  await harness.open();
  await harness.receiveState(state);
  await harness.click("tab", "Snapshots");
  await rest();
  return harness;
}

/** Wait until all promises of the page are settled. */
export async function rest(): Promise<void> {
  await act(async () => {
    for (let n = 0; n < 60; n += 1) await Promise.resolve();
  });
}
