/** Tests of the form that sends a request to an endpoint. */

import { RequestError } from "../../src/net/requestError";
import type * as wire from "../../src/wire";
import { example } from "../examples";
import { Harness } from "../harness";

const FIELD = "Request (JSON)";
const saved = example<wire.EndpointRequest>("endpoint-request");
const answer = example<wire.EndpointAnswer>("endpoint-answer");
const { endpoints } = example<wire.State>("state");
class Refusal extends RequestError {
  constructor(message: string) {
    super({ code: "failed", message, runs: [] }, 409);
  }
}

let harness: Harness;

beforeEach(async () => {
  harness = new Harness();
  harness.answers["endpointExample"] = () => saved;
  harness.answers["callEndpoint"] = () => answer;
  await harness.open();
  await harness.receiveState("state");
  await harness.click("tab", "Endpoints");
});
afterEach(() => {
  harness.close();
});

const open = () => harness.click("button", "Send a request to iris");
const field = () => harness.get("textbox", FIELD) as HTMLTextAreaElement;
const send = () => harness.get("button", "Send") as HTMLButtonElement;
const status = () => harness.root.querySelector("form [role=status]")?.textContent;
const alert = () => harness.root.querySelector("form [role=alert]")?.textContent;
const sent = () => harness.requests.filter((one) => one.startsWith("callEndpoint"));

test("the form is loaded only when it is opened, and it can be closed again", async () => {
  const button = harness.get("button", "Send a request to iris");
  expect(button.getAttribute("aria-expanded")).toBe("false");
  expect(harness.requests).toEqual([]);
  await open();
  expect(button.getAttribute("aria-expanded")).toBe("true");
  expect(harness.requests).toEqual(['endpointExample "iris"']);
  expect(harness.get("form", "Request to iris")).toBeTruthy();
  await open();
  expect(harness.root.querySelector("form")).toBeNull();
});

test("the example is sent, and the answer and its time are shown", async () => {
  await open();
  expect(field().value).toBe(saved.request);
  expect(await harness.violations()).toEqual([]);
  await harness.click("button", "Send");
  expect(sent()).toEqual([`callEndpoint "iris" ${JSON.stringify(saved)}`]);
  expect(status()).toBe("Answered in 31.2 ms");
  expect(harness.get("group", "Answer of iris").textContent).toBe(answer.answer);
  expect(await harness.violations()).toEqual([]);
});

test("a keyboard reaches a long answer, and the focus stays on the button", async () => {
  await open();
  send().focus();
  await harness.click("button", "Send");
  expect(document.activeElement).toBe(send());
  expect(harness.get("group", "Answer of iris").tabIndex).toBe(0);
});

test("the user changes the request", async () => {
  await open();
  await harness.type("textbox", FIELD, '{"inputs": []}');
  await harness.click("button", "Send");
  expect(sent()).toEqual([`callEndpoint "iris" ${JSON.stringify({ request: '{"inputs": []}' })}`]);
});

test("an empty request cannot be sent", async () => {
  await open();
  await harness.type("textbox", FIELD, " \n");
  expect(send().disabled).toBe(true);
  await harness.click("button", "Send");
  expect(sent()).toEqual([]);
});

test("an answer is text, whatever it contains", async () => {
  harness.answers["callEndpoint"] = () => ({ ...answer, answer: '"<img src=x onerror=alert(1)>"' });
  await open();
  await harness.click("button", "Send");
  expect(harness.get("group", "Answer of iris").innerHTML).toBe('"&lt;img src=x onerror=alert(1)&gt;"');
});

test("an error of the endpoint is shown in the form and announced, and the next answer replaces it", async () => {
  await open();
  await harness.click("button", "Send");
  const reason = "the endpoint iris answered 400: the input 'x' is missing";
  harness.answers["callEndpoint"] = () => Promise.reject(new Refusal(reason));
  await harness.click("button", "Send");
  expect(alert()).toBe(reason);
  expect(status()).toBe("");
  expect(harness.root.querySelector("pre")).toBeNull();
  expect(harness.root.querySelector(".fd-notes [role=alert]")).toBeNull();
  expect(field().value).toBe(saved.request);
  expect(await harness.violations()).toEqual([]);
  harness.answers["callEndpoint"] = () => answer;
  await harness.click("button", "Send");
  expect(alert()).toBeUndefined();
  expect(harness.get("group", "Answer of iris")).toBeTruthy();
});

test("a request that waits for its answer is not sent twice", async () => {
  await open();
  let answered: (value: wire.EndpointAnswer) => void = jest.fn();
  harness.answers["callEndpoint"] = () => new Promise<wire.EndpointAnswer>((resolve) => (answered = resolve));
  await harness.click("button", "Send");
  expect(status()).toBe("Waiting for the answer…");
  expect(send().getAttribute("aria-disabled")).toBe("true");
  await harness.click("button", "Send");
  expect(sent()).toHaveLength(1);
  answered(answer);
  await harness.receive();
  expect(status()).toBe("Answered in 31.2 ms");
  expect(send().getAttribute("aria-disabled")).toBe("false");
});

test("an error that is no refusal is shown, too, and ends the waiting", async () => {
  await open();
  harness.answers["callEndpoint"] = () => Promise.reject(new TypeError("there is no answer"));
  await harness.click("button", "Send");
  expect([status(), alert()]).toEqual(["", "there is no answer"]);
  expect(send().getAttribute("aria-disabled")).toBe("false");
});

test("while the example is loaded, nothing can be sent", async () => {
  harness.answers["endpointExample"] = () => new Promise(() => undefined);
  await open();
  expect([field().disabled, field().placeholder]).toEqual([true, "Loading the example…"]);
  expect(send().disabled).toBe(true);
  expect(await harness.violations()).toEqual([]);
});

test.each([Refusal, TypeError])(
  "without an example, the reason is shown and the user can write a request",
  async (error) => {
    harness.answers["endpointExample"] = () => Promise.reject(new error("the example of iris:3 cannot be read"));
    await open();
    expect(alert()).toBe("the example of iris:3 cannot be read");
    expect(field().disabled).toBe(false);
    await harness.type("textbox", FIELD, "{}");
    await harness.click("button", "Send");
    expect(sent()).toEqual(['callEndpoint "iris" {"request":"{}"}']);
    expect(alert()).toBeUndefined();
  },
);

test("an example that is too large for the page is sent without being shown", async () => {
  const large = example<wire.EndpointRequest>("endpoint-request-large");
  harness.answers["endpointExample"] = () => large;
  harness.answers["callEndpoint"] = () => ({ ...answer, complete: false });
  await open();
  expect(harness.root.querySelector("textarea")).toBeNull();
  expect(harness.root.textContent).toContain("too large to be shown");
  await harness.click("button", "Send");
  expect(sent()).toEqual([`callEndpoint "iris" ${JSON.stringify(large)}`]);
  expect(harness.root.textContent).toContain("Only the beginning of the answer is shown");
  expect(await harness.violations()).toEqual([]);
});

test("what the user has written survives new figures and another version", async () => {
  await open();
  await harness.type("textbox", FIELD, "my request");
  const [iris] = endpoints as [wire.Endpoint];
  for (const version of [null, 4]) {
    await harness.receive({ kind: "endpoints", endpoints: [{ ...iris, version, requests_per_second: null }] });
    expect(field().value).toBe("my request");
  }
  expect(harness.requests).toEqual(['endpointExample "iris"']);
});

test("what the user has written is kept while another tab is shown, until the form is closed", async () => {
  await open();
  await harness.type("textbox", FIELD, "my request");
  await harness.click("tab", "Runs");
  await harness.click("tab", "Endpoints");
  expect(field().value).toBe("my request");
  await open();
  await open();
  expect(field().value).toBe(saved.request);
});

test("the form ends with its endpoint", async () => {
  await open();
  const [iris] = endpoints as [wire.Endpoint];
  await harness.receive({ kind: "endpoints", endpoints: [{ ...iris, state: "stopping" }] });
  expect(harness.root.querySelector("form")).toBeNull();
});
