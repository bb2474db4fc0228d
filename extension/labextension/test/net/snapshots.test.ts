/** Tests of the requests about snapshots. */

import type { ServerConnection } from "@jupyterlab/services";

import { Api } from "../../src/net/api";
import type * as wire from "../../src/wire";
import { example } from "../examples";

jest.mock("@jupyterlab/coreutils", () => ({ URLExt: { join: (...parts: string[]) => parts.join("/") } }));
jest.mock("@jupyterlab/services", () => ({ ServerConnection: { makeRequest: jest.fn() } }));
const { makeRequest } = jest.requireMock<{ ServerConnection: { makeRequest: jest.Mock } }>(
  "@jupyterlab/services",
).ServerConnection;

const ROOT = "/user/ada/farandole/panel/";
const api = new Api({ baseUrl: "/user/ada" } as ServerConnection.ISettings);
const running = example<wire.SnapshotJob>("snapshot-job-running");
const done = example<wire.SnapshotJob>("snapshot-job");
const failed = example<wire.SnapshotJob>("snapshot-job-failed");

const requested = () =>
  (makeRequest.mock.calls as [string, { method: string; body?: string }][]).map(
    ([address, { method }]) => `${method} ${address.replace(ROOT, "")}`,
  );

/** Respond to the next requests with these bodies. */
function responds(...bodies: unknown[]): void {
  makeRequest.mockReset();
  for (const body of bodies) {
    makeRequest.mockResolvedValueOnce({ ok: true, status: 200, text: () => Promise.resolve(JSON.stringify(body)) });
  }
}

test("a snapshot is taken, and the page asks until it is done", async () => {
  responds(running, running, done);
  expect(await api.takeSnapshot({ message: "" })).toEqual(done);
  expect(requested()).toEqual(["POST snapshots", "GET snapshots/jobs/1", "GET snapshots/jobs/1"]);
});

test("a job that fails rejects with its problem", async () => {
  responds(running, failed);
  const error: unknown = await api
    .restoreFile("a b", { path: "x", to: null, keep_both: false })
    .catch((one: unknown) => one);
  expect(error).toMatchObject({ problem: failed.problem });
  expect(requested()).toEqual(["POST snapshots/a%20b/restore", "GET snapshots/jobs/1"]);
});

test("names of files are escaped", async () => {
  responds({}, {}, {}, {}, {});
  await api.snapshots(100);
  await api.snapshotChanges("abc");
  await api.snapshotFiles("abc", "a&b/ü", 50, 50);
  await api.fileVersions({ path: "a b" });
  await api.fileVersions({ file: "work/#1" });
  expect(requested()).toEqual([
    "GET snapshots?limit=100",
    "GET snapshots/abc/changes",
    "GET snapshots/abc/files?path=a%26b%2F%C3%BC&offset=50&limit=50",
    "GET snapshots/versions?path=a+b",
    "GET snapshots/versions?file=work%2F%231",
  ]);
});
