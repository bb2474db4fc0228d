/** Tests of the websocket's URL. */

import type { ServerConnection } from "@jupyterlab/services";

import { Api } from "../src/net/api";

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
