/** Tests of the websocket's URL, and of the requests for the table of runs. */

import type { ServerConnection } from "@jupyterlab/services";

import { Api } from "../src/net/api";
import { tableQuery } from "../src/net/filters";

jest.mock("@jupyterlab/coreutils", () => ({ URLExt: { join: (...parts: string[]) => parts.join("/") } }));
jest.mock("@jupyterlab/services", () => ({}));

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
  expect(tableQuery(filter, { column: "series.loss.lowest", descending: true }, 50, 50)).toEqual({
    offset: "50",
    limit: "50",
    text: "cnn",
    tag: "paper",
    sort: "series.loss.lowest",
    descending: "1",
  });
  expect(tableQuery({ ...filter, tag: "" }, { column: "name", descending: false }, 0, 50)).toEqual({
    offset: "0",
    limit: "50",
    text: "cnn",
    sort: "name",
  });
});
