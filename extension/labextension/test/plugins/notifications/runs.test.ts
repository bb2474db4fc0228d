/** Tests of the notifications of runs, with simulated notifications of JupyterLab and of the browser. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { ISettingRegistry } from "@jupyterlab/settingregistry";
import { Signal } from "@lumino/signaling";

import { readFileSync } from "node:fs";
import { join } from "node:path";

import { ENGLISH } from "../../../src/i18n";
import { Commands } from "../../../src/ids";
import { refusalText } from "../../../src/plugins/notifications/browser";
import { addNotifications, DEFAULTS } from "../../../src/plugins/notifications/runs";
import type { IPanelModel } from "../../../src/state/model";
import { EMPTY, type PanelState } from "../../../src/state/reducer";
import type * as wire from "../../../src/wire";
import { example } from "../../examples";

interface Shown {
  actions: { label: string; callback(): void }[];
}
jest.mock("@jupyterlab/apputils", () => {
  const emit = jest.fn();
  return { Notification: { emit, warning: (text: string, options: Shown) => void emit(text, "warning", options) } };
});
const { emit } = jest.requireMock<{ Notification: { emit: jest.Mock<void, [string, string, Shown]> } }>(
  "@jupyterlab/apputils",
).Notification;

/** The browser's notifications, which a test can allow or forbid. */
class BrowserNotification {
  static permission = "default";
  static answer = "granted";
  static readonly requestPermission = jest.fn(() => {
    BrowserNotification.permission = BrowserNotification.answer;
    return Promise.resolve(BrowserNotification.answer);
  });
  static shown: BrowserNotification[] = [];
  onclick: () => void = () => undefined;
  readonly close = jest.fn();

  constructor(
    readonly title: string,
    readonly options: NotificationOptions,
  ) {
    BrowserNotification.shown.push(this);
  }
}

const active = example<wire.RunsMessage>("runs").runs[0] as wire.RunSummary;
const failed = { ...active, status: "failed", goes_on: false, error: "ValueError: <b>no</b>" } as const;
const finished = { ...active, status: "finished", goes_on: false, seconds: 20 } as const;

/** The plugin with its command and its settings, on a page of which the test sets the state. */
class Lab {
  state: PanelState = { ...EMPTY, connection: "open" };
  readonly changed = new Signal<IPanelModel, void>(this as unknown as IPanelModel);
  readonly navigate = jest.fn();
  readonly showProblem = jest.fn();
  readonly subscribe = jest.fn(() => jest.fn());
  readonly settingsChanged = new Signal<this, void>(this);
  composite: object = DEFAULTS;
  command = { execute: () => Promise.resolve(), isToggled: () => false };

  constructor(registry: object | null = { load: () => Promise.resolve(this.settings()) }) {
    const commands = {
      notifyCommandChanged: jest.fn(),
      addCommand: (name: string, command: Lab["command"]) => {
        expect(name).toBe(Commands.notifyInBrowser);
        this.command = command;
      },
    };
    const model = Object.assign(this, { trans: ENGLISH }) as unknown as IPanelModel;
    addNotifications({ commands } as unknown as JupyterFrontEnd, model, registry as ISettingRegistry | null, null);
  }
  private settings(): object {
    const set = (name: string, value: unknown) => this.set({ [name]: value });
    const changed = this.settingsChanged;
    return Object.defineProperty({ changed, set }, "composite", { get: () => this.composite });
  }
  set(values: object): Promise<void> {
    this.composite = { ...this.composite, ...values };
    this.settingsChanged.emit();
    return Promise.resolve();
  }
  list(...runs: wire.RunSummary[]): void {
    this.state = { ...this.state, runs, total: runs.length };
    this.changed.emit();
  }
}

let lab: Lab;

async function start(settings: object = {}): Promise<void> {
  lab = new Lab();
  lab.composite = { ...DEFAULTS, ...settings };
  await Promise.resolve();
  await Promise.resolve();
  lab.list(active);
}

beforeEach(() => {
  jest.useFakeTimers();
  emit.mockClear();
  BrowserNotification.requestPermission.mockClear();
  Object.assign(BrowserNotification, { permission: "default", answer: "granted", shown: [] });
  Object.assign(window, { isSecureContext: true, Notification: BrowserNotification, focus: jest.fn() });
});
afterEach(() => {
  jest.useRealTimers();
});

test("the defaults are those of the schema", () => {
  const schema = JSON.parse(readFileSync(join(__dirname, "../../../schema/notifications.json"), "utf8")) as {
    properties: Record<string, { default: unknown }>;
  };
  expect(Object.fromEntries(Object.entries(schema.properties).map(([name, one]) => [name, one.default]))).toEqual(
    DEFAULTS,
  );
});

test("JupyterLab shows a failed run with its error, and opens the run", async () => {
  await start();
  expect(lab.subscribe).toHaveBeenLastCalledWith({ followed: [active.id] });
  lab.list(failed);
  const [text, type, options] = emit.mock.calls[0] ?? [];
  expect([text, type]).toEqual(["first-cnn has failed: ValueError: <b>no</b>", "error"]);
  options?.actions[0]?.callback();
  expect(lab.navigate).toHaveBeenCalledWith({ show: "run", run: active.id });
  expect(BrowserNotification.shown).toEqual([]);
});

test("an event that the settings leave out is not shown", async () => {
  await start({ failed: false, browser: true });
  emit.mockClear();
  lab.list(failed);
  expect(emit).not.toHaveBeenCalled();
});

describe("the browser", () => {
  test("is asked for permission only by the command, and then notifies with a tag", async () => {
    await start();
    expect(BrowserNotification.requestPermission).not.toHaveBeenCalled();
    await lab.command.execute();
    expect(lab.composite).toMatchObject({ browser: true });
    expect(lab.command.isToggled()).toBe(true);
    lab.list(failed);
    const [shown] = BrowserNotification.shown;
    expect(shown?.title).toBe("Farandole: first-cnn");
    expect(shown?.options.tag).toBe(`farandole ${active.id} failed`);
    shown?.onclick();
    expect(lab.navigate).toHaveBeenCalledWith({ show: "run", run: active.id });
    await lab.command.execute();
    expect(lab.composite).toMatchObject({ browser: false });
  });

  test.each([
    ["denied", true, "Click the icon beside the address"],
    ["granted", false, "pages with HTTPS"],
  ])("that answers %s on a page with HTTPS: %s is explained", async (answer, isSecureContext, words) => {
    Object.assign(window, { isSecureContext });
    BrowserNotification.answer = answer;
    await start();
    await lab.command.execute();
    expect(emit).toHaveBeenCalledWith(expect.stringContaining(words), "warning", expect.anything());
    expect(lab.composite).toMatchObject({ browser: false });
    lab.list(failed);
    expect(BrowserNotification.shown).toEqual([]);
  });

  test("that has no notifications is explained", async () => {
    Reflect.deleteProperty(window, "Notification");
    await start();
    await lab.command.execute();
    expect(emit).toHaveBeenCalledWith(expect.stringContaining("shows no notifications"), "warning", expect.anything());
    expect(lab.composite).toMatchObject({ browser: false });
  });

  test("that forbids what the settings ask for is explained once, and is not asked", async () => {
    BrowserNotification.permission = "denied";
    await start({ browser: true });
    expect(emit).toHaveBeenCalledTimes(1);
    expect(emit).toHaveBeenCalledWith(expect.stringContaining("The browser forbids"), "warning", expect.anything());
    expect(BrowserNotification.requestPermission).not.toHaveBeenCalled();
    lab.list(failed);
    expect(emit).toHaveBeenLastCalledWith(expect.stringContaining("has failed"), "error", expect.anything());
  });

  test.each(["insecure", "unsupported", "denied"] as const)("%s is explained in at most 140 characters", (why) => {
    expect(refusalText(ENGLISH, why).length).toBeLessThanOrEqual(140);
  });

  test("without a permission for the settings is asked by a button", async () => {
    await start({ browser: true });
    expect(BrowserNotification.requestPermission).not.toHaveBeenCalled();
    emit.mock.calls[0]?.[2].actions[0]?.callback();
    expect(BrowserNotification.requestPermission).toHaveBeenCalled();
  });

  test.each([
    [20, false, 0],
    [20, true, 1],
    [30, false, 1],
  ])("tells of a run of %p s, hidden: %p, %p times", async (seconds, hidden, times) => {
    BrowserNotification.permission = "granted";
    jest.spyOn(document, "hidden", "get").mockReturnValue(hidden);
    await start({ browser: true });
    lab.list({ ...finished, seconds });
    expect(emit).toHaveBeenCalledWith(expect.stringContaining("has finished"), "success", expect.anything());
    expect(BrowserNotification.shown).toHaveLength(times);
  });
});

test("without settings the command works until the page is closed, and invalid settings are reported", async () => {
  lab = new Lab(null);
  await lab.command.execute();
  expect(lab.command.isToggled()).toBe(true);
  lab = new Lab({ load: () => Promise.reject(new Error("not valid")) });
  await lab.command.execute();
  expect(lab.showProblem).toHaveBeenCalledWith(expect.stringContaining("not valid"));
});
