/** Tests of the websocket's URL, and of the requests for the table of runs. */

import type { ServerConnection } from "@jupyterlab/services";

import { Api } from "../../src/net/api";
import { tableQuery } from "../../src/net/filters";

jest.mock("@jupyterlab/coreutils", () => ({ URLExt: { join: (...parts: string[]) => parts.join("/") } }));
jest.mock("@jupyterlab/services", () => ({ ServerConnection: { makeRequest: jest.fn() } }));
const { makeRequest } = jest.requireMock<{ ServerConnection: { makeRequest: jest.Mock } }>(
  "@jupyterlab/services",
).ServerConnection;

const EVENTS = "wss://hub/user/ada/farandole/panel/events";

test.each([
  [true, "a token", `${EVENTS}?token=a%20token`],
  [true, "", EVENTS],
  [false, "a token", EVENTS],
])("the URL of the stream has the token if JupyterLab appends it (%p, %p)", (appendToken, token, address) => {
  const opened = jest.fn();
  const settings = { wsUrl: "wss://hub/user/ada", appendToken, token, WebSocket: opened };
  new Api(settings as unknown as ServerConnection.ISettings).openStream();
  expect(opened.mock.calls).toEqual([[address]]);
});

test("a request for the table names what is set", () => {
  const filter = { text: " cnn ", status: "", cluster: "", tag: "paper" } as const;
  const columns = ["series.a&b.last", "config.lr"];
  expect(String(tableQuery(filter, { column: "series.loss.lowest", descending: true }, columns, 50, 50))).toBe(
    "offset=50&limit=50&text=cnn&tag=paper&sort=series.loss.lowest&descending=1" +
      "&column=series.a%26b.last&column=config.lr",
  );
  expect(String(tableQuery({ ...filter, tag: "" }, { column: "name", descending: false }, [], 0, 50))).toBe(
    "offset=0&limit=50&text=cnn&sort=name",
  );
});

test("a search can be aborted", async () => {
  makeRequest.mockResolvedValue({ ok: true, status: 200, text: () => Promise.resolve('{"matches": []}') });
  const { signal } = new AbortController();
  const api = new Api({ baseUrl: "/user/ada" } as ServerConnection.ISettings);
  expect(await api.searchLogs("a run", "loss: 0", "0,1", signal)).toEqual({ matches: [] });
  const address = "/user/ada/farandole/panel/runs/a%20run/search?text=loss%3A+0&limit=1000&ranks=0%2C1";
  expect(makeRequest.mock.calls).toEqual([[address, { method: "GET", signal }, { baseUrl: "/user/ada" }]]);
});
