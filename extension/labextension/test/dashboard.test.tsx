/** Tests of the dashboard after the kernel that followed its run has ended, and after another kernel has attached. */

import { act } from "react";

import dashboard from "../src/dashboard";
import { SILENT_MILLISECONDS } from "../src/follower";
import type * as wire from "../src/wire";
import { example } from "./examples";

const view = { ...example<wire.RunMessage>("run").view, status: "running", ended: false };

/** A model as anywidget passes it to a widget. */
class FakeModel {
  sent: unknown[] = [];
  private readonly handlers = new Map<string, Set<() => void>>();
  private readonly traits: Record<string, unknown> = { per_rank: false, log_scale: [], stopping: false, shown: true };

  constructor(shown: object) {
    this.traits["view"] = shown;
  }

  get = (name: string) => this.traits[name] as never;
  set = (name: string, value: unknown) => (this.traits[name] = value);
  save_changes = () => undefined;
  send = (message: unknown) => this.sent.push(message);
  on = (event: string, handler: () => void) => {
    this.handlers.set(event, (this.handlers.get(event) ?? new Set()).add(handler));
  };
  off = (event: string, handler: () => void) => this.handlers.get(event)?.delete(handler);
  trigger = (event: string) => {
    act(() => [...(this.handlers.get(event) ?? [])].forEach((handler) => handler()));
  };
  receive = (shown: object) => {
    this.set("view", shown);
    this.trigger("change:view");
  };
}

let el: HTMLElement;
let model: FakeModel;
let close: () => void;

const show = (shown: object) => {
  model = new FakeModel(shown);
  act(() => {
    dashboard.initialize({ model });
    close = dashboard.render({ model, el });
  });
};
const attach = (shown: object) => {
  const next = new FakeModel(shown);
  act(() => dashboard.initialize({ model: next }));
  return next;
};
const pass = (milliseconds: number) => act(() => jest.advanceTimersByTime(milliseconds));
const status = () => el.querySelector(".fd-status")?.textContent;
const stop = () => el.querySelector<HTMLButtonElement>(".fd-stop") as HTMLButtonElement;

beforeEach(() => {
  jest.useFakeTimers();
  el = document.body.appendChild(document.createElement("div"));
  show(view);
});
afterEach(() => {
  act(() => close());
  el.remove();
  jest.useRealTimers();
});

test("a dashboard whose kernel restarts says so at once, and offers no Stop", () => {
  expect(status()).toBe("running");
  model.trigger("comm_live_update");
  expect(status()).toBe("no kernel");
  expect(el.textContent).toContain("%cluster attach");
  expect(stop().disabled).toBe(true);
});

test("a dashboard whose kernel was killed says so when views stay away, and takes it back with the next view", () => {
  pass(SILENT_MILLISECONDS - 1000);
  model.receive({ ...view, elapsed: 1 });
  pass(SILENT_MILLISECONDS - 1000);
  expect(status()).toBe("running");
  pass(1000);
  expect(status()).toBe("no kernel");
  model.receive({ ...view, elapsed: 60 });
  expect(status()).toBe("running");
  expect(stop().disabled).toBe(false);
});

test("an ended run needs no kernel", () => {
  model.receive({ ...view, status: "finished", ended: true });
  model.trigger("comm_live_update");
  pass(SILENT_MILLISECONDS);
  expect(status()).toBe("finished");
  expect(el.textContent).not.toContain("%cluster attach");
});

test("a dashboard shows its run live again when another kernel attaches", () => {
  model.trigger("comm_live_update");
  attach({ ...view, id: "another run" });
  expect(status()).toBe("no kernel");
  const next = attach({ ...view, elapsed: 60 });
  expect(status()).toBe("running");
  act(() => stop().click());
  expect([model.sent, next.sent]).toEqual([[], [{ type: "stop" }]]);
  next.receive({ ...view, status: "finished", ended: true });
  expect(status()).toBe("finished");
});

test("a dashboard that notices late that its kernel was killed shows the run of the kernel that has attached", () => {
  const next = attach(view);
  pass(SILENT_MILLISECONDS);
  expect(status()).toBe("running");
  next.receive({ ...view, status: "finished", ended: true });
  expect(status()).toBe("finished");
});

test("a removed dashboard listens no longer", () => {
  act(() => close());
  attach(view);
  pass(SILENT_MILLISECONDS);
  expect(el.textContent).toBe("");
});
