/** Tests of the notices of operators, with simulated notifications and dialogs of JupyterLab. */

import { Signal } from "@lumino/signaling";

import { ENGLISH } from "../../../src/i18n";
import { addNotices } from "../../../src/plugins/notifications/notices";
import type { IPanelModel } from "../../../src/state/model";
import { EMPTY, type PanelState } from "../../../src/state/reducer";
import type * as wire from "../../../src/wire";
import { example, HUB } from "../../examples";

interface Options {
  autoClose: boolean;
  actions: { label: string; callback(event: MouseEvent): void }[];
}
jest.mock("@jupyterlab/apputils", () => ({
  Dialog: { okButton: ({ label }: { label: string }) => label },
  Notification: { emit: jest.fn() },
  showDialog: jest.fn(() => Promise.resolve()),
}));
const {
  Notification: { emit },
  showDialog,
} = jest.requireMock<{ Notification: { emit: jest.Mock<void, [string, string, Options]> }; showDialog: jest.Mock }>(
  "@jupyterlab/apputils",
);

const KEY = "farandole:notices:ada";
const NOW = new Date(2026, 8, 21, 16, 0);
const FULL = "QuotaExceededError";

function at(minute: number, text: string, ...servers: string[]): wire.HubNotice {
  return { by: "olga", time: new Date(2026, 8, 21, 14, minute).getTime() / 1000, text, servers };
}

/** A page that JupyterLab has loaded, and that receives the hub's state from the server. */
class Page {
  state: PanelState = EMPTY;
  readonly trans = ENGLISH;
  readonly changed = new Signal<this, void>(this);

  constructor() {
    emit.mockClear();
    addNotices(this as unknown as IPanelModel);
  }
  /** Receive the notices, the newest first, and return the texts of all notifications of the page. */
  receive(...notices: wire.HubNotice[]): string[] {
    return this.receiveHub({ ...HUB, notices });
  }
  receiveHub(hub: wire.Hub | null): string[] {
    this.state = { ...this.state, hub };
    this.changed.emit();
    return emit.mock.calls.map(([text]) => text);
  }
}

/** Make the browser's storage fail. */
function forbid(...names: ("getItem" | "setItem")[]): void {
  for (const name of names) {
    jest.spyOn(Storage.prototype, name).mockImplementation(() => {
      throw new DOMException("no", FULL);
    });
  }
}

beforeEach(() => {
  jest.useFakeTimers({ now: NOW });
  localStorage.clear();
  showDialog.mockClear();
});
afterEach(() => {
  jest.restoreAllMocks();
  jest.useRealTimers();
});

test("a page shows each notice once, the oldest first", () => {
  const page = new Page();
  const [message, stop] = [at(5, "Tidy up."), at(2, "", "", "main-w0")];
  const texts = [
    "14:02: olga stopped your notebook server, the server main-w0. Reason: none given.",
    "14:05: message from olga: Tidy up.",
  ];
  expect(page.receive(message, stop)).toEqual(texts);
  expect(page.receive(message, stop)).toEqual(texts);
  expect(emit.mock.calls.map(([, type, options]) => [type, options])).toEqual(
    Array(2).fill(["warning", { autoClose: false, actions: [] }]),
  );
});

test("a reload or another page of the browser shows only new notices, in whatever order they come", () => {
  new Page().receive(at(5, "Tidy up."));
  const page = new Page();
  expect(page.receive(at(5, "Tidy up."))).toEqual([]);
  expect(page.receive(at(5, "Tidy up."), at(3, "Late."))).toEqual(["14:03: message from olga: Late."]);
  expect(page.receive(at(9, "Bye."), at(5, "Tidy up."), at(3, "Late.")).slice(1)).toEqual([
    "14:09: message from olga: Bye.",
  ]);
  expect(new Page().receive(at(9, "Bye."), at(5, "Tidy up."), at(3, "Late."))).toEqual([]);
});

test("a hidden page shows a notice once it is visible, unless another page of the browser has shown it", () => {
  const hidden = jest.spyOn(document, "hidden", "get").mockReturnValue(true);
  const page = new Page();
  expect(page.receive(at(5, "Tidy up."))).toEqual([]);
  expect(localStorage).toHaveLength(0);
  hidden.mockReturnValue(false);
  document.dispatchEvent(new Event("visibilitychange"));
  expect(emit).toHaveBeenCalledTimes(1);
  hidden.mockReturnValue(true);
  const late = new Page();
  late.receive(at(5, "Tidy up."));
  hidden.mockReturnValue(false);
  document.dispatchEvent(new Event("visibilitychange"));
  expect(emit).not.toHaveBeenCalled();
});

test("a notice whose servers the hub has corrected is shown again, and one of the same time for other servers", () => {
  const page = new Page();
  page.receive(at(5, "Bye.", "", "main-w0"));
  expect(page.receive(at(5, "Bye.", "main-w0"), at(5, "Bye.", "exam-w0")).slice(1)).toEqual([
    "14:05: olga stopped the server exam-w0. Reason: Bye.",
    "14:05: olga stopped the server main-w0. Reason: Bye.",
  ]);
});

test("a notice of another day has its date", () => {
  jest.setSystemTime(new Date(2026, 8, 22, 8, 0));
  expect(new Page().receive(at(5, "Tidy up."))).toEqual(["2026-09-21 14:05: message from olga: Tidy up."]);
});

test("another user of the browser sees other notices", () => {
  new Page().receive(at(5, "Tidy up."));
  expect(new Page().receiveHub({ ...HUB, user: "grace", notices: [at(5, "Tidy up.")] })).toHaveLength(1);
});

test("a page without a hub, or whose hub has not answered, shows nothing", () => {
  const page = new Page();
  expect(page.receiveHub(null)).toEqual([]);
  expect(page.receiveHub({ ...HUB, user: null, error: "the hub does not answer" })).toEqual([]);
  expect(localStorage).toHaveLength(0);
});

test("the notices that arrived before the plugin started are shown", () => {
  const { changed } = new Page();
  const state = { ...EMPTY, hub: { ...HUB, notices: [at(5, "Tidy up.")] } };
  addNotices({ state, changed, trans: ENGLISH } as unknown as IPanelModel);
  expect(emit).toHaveBeenCalledTimes(1);
});

test.each(["", "[", "5", "null", "{}", '"14"', '["1790000700", null, {}]', "1e999"])(
  "a damaged storage, %p, hides no notice, and is repaired",
  (damaged) => {
    localStorage.setItem(KEY, damaged);
    const page = new Page();
    expect(page.receive(at(5, "Tidy up."))).toHaveLength(1);
    expect(page.receive(at(5, "Tidy up."))).toHaveLength(1);
    expect(new Page().receive(at(5, "Tidy up."))).toEqual([]);
  },
);

test.each([[["getItem"]], [["setItem"]], [["getItem", "setItem"]]] as const)(
  "if the browser refuses %p, each page shows a notice once",
  (refused) => {
    forbid(...refused);
    for (const page of [new Page(), new Page()]) {
      emit.mockClear();
      expect(page.receive(at(5, "Tidy up."))).toHaveLength(1);
      expect(page.receive(at(9, "Bye."), at(5, "Tidy up."))).toHaveLength(2);
    }
  },
);

test("a text that JupyterLab cuts is shown in full by a button, which keeps the notification", () => {
  const long = `${"x".repeat(499)}!`;
  new Page().receive(at(5, long));
  const [text, , options] = emit.mock.calls[0] ?? [];
  expect(text).toBe(`14:05: message from olga: ${long}`);
  expect(options?.actions.map(({ label }) => label)).toEqual(["Show the Text"]);
  const click = new MouseEvent("click", { cancelable: true });
  options?.actions[0]?.callback(click);
  expect(click.defaultPrevented).toBe(true);
  expect(showDialog).toHaveBeenCalledWith({ title: "Notice from olga", body: text, buttons: ["Close"] });
});

test.each([
  [140, 0],
  [141, 1],
])("a notification of %p characters has %p buttons", (length, buttons) => {
  new Page().receive(at(5, "x".repeat(length - "14:05: message from olga: ".length)));
  const [text, , options] = emit.mock.calls[0] ?? [];
  expect([text?.length, options?.actions.length]).toEqual([length, buttons]);
});

test("markup and signs of translators stay text", () => {
  const odd = { ...at(5, `<b>bold</b> %1 100%% ${"x".repeat(140)}`), by: "<i>olga</i>" };
  const [text] = new Page().receive(odd);
  expect(text).toBe(`14:05: message from <i>olga</i>: ${odd.text}`);
  emit.mock.calls[0]?.[2].actions[0]?.callback(new MouseEvent("click"));
  // JupyterLab shows a string in a dialog as text, and an element as it is.
  expect(showDialog).toHaveBeenCalledWith(expect.objectContaining({ body: text }));
});

test("the examples of both languages are shown", () => {
  const texts = new Page().receiveHub(example<wire.ClustersMessage>("clusters").hub);
  expect(texts.map((text) => text.replace(/^.*\d\d:\d\d: /, ""))).toEqual([
    "olga stopped your notebook server, the server exam-w0. Reason: none given.",
    "message from olga: The machine restarts at 18:00. Save <b>everything</b>.",
  ]);
});
