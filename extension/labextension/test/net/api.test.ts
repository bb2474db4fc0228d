/** Tests of the websocket's URL, of requests for the table of runs and to endpoints, and of responses that are not valid. */

import type { ServerConnection } from "@jupyterlab/services";

import { Api } from "../../src/net/api";
import { tableQuery } from "../../src/net/filters";
import { RequestError } from "../../src/net/requestError";
import type * as wire from "../../src/wire";
import { example, text } from "../examples";

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

describe("endpoints", () => {
  const api = new Api({ baseUrl: "/user/ada" } as ServerConnection.ISettings);
  const requested = () => makeRequest.mock.lastCall as [string, { method: string; body?: string }, unknown];
  const responds = (status: number, body: string) =>
    void makeRequest.mockResolvedValue({ ok: status < 400, status, text: () => Promise.resolve(body) });

  test("an endpoint is stopped, and the response has no content", async () => {
    responds(204, "");
    expect(await api.stopEndpoint("my iris")).toBe(true);
    const [address, { method }] = requested();
    expect([method, address]).toEqual(["DELETE", "/user/ada/farandole/panel/endpoints/my%20iris"]);
  });

  test("the example of a model is requested, and sent as it is", async () => {
    responds(200, text("endpoint-request.json"));
    const found = await api.endpointExample("iris");
    expect(requested().slice(0, 2)).toEqual(["/user/ada/farandole/panel/endpoints/iris/example", { method: "GET" }]);
    responds(200, text("endpoint-answer.json"));
    expect(await api.callEndpoint("iris", found)).toEqual(example<wire.EndpointAnswer>("endpoint-answer"));
    const [address, { method, body }] = requested();
    expect([method, address]).toEqual(["POST", "/user/ada/farandole/panel/endpoints/iris/infer"]);
    expect(JSON.parse(body ?? "")).toEqual(example("endpoint-request"));
  });

  test("a refusal has the reason of the server", async () => {
    responds(400, text("problem-invalid.json"));
    const { message } = example<wire.Problem>("problem-invalid");
    await expect(api.callEndpoint("iris", { request: "{" })).rejects.toThrow(message);
  });
});

describe("a response that is not valid is an error that the page shows", () => {
  const api = new Api({ baseUrl: "/user/ada" } as ServerConnection.ISettings);
  const failureOf = async (status: number, body: Promise<string>) => {
    makeRequest.mockResolvedValue({ ok: status < 400, status, statusText: "", text: () => body });
    const error: unknown = await api.run("a run").catch((reason: unknown) => reason);
    return error instanceof RequestError ? [error.problem.code, error.status, error.message] : error;
  };

  test.each([200, 502])("the connection ends in the middle of a response with status %p", async (status) => {
    const cut = Promise.reject<string>(new TypeError("network error"));
    expect(await failureOf(status, cut)).toEqual(["unreachable", status, "TypeError: network error"]);
  });

  test.each(["<html>Please log in</html>", '{"id": "a ru', ""])("the response is not JSON: %p", async (body) => {
    const message = "The notebook server did not send this response. Reload the page, and log in if it asks for it.";
    expect(await failureOf(200, Promise.resolve(body))).toEqual(["unreachable", 200, message]);
  });
});
