/** Renders the panel on a page and simulates the server. */

import type { TranslationBundle } from "@jupyterlab/translation";
import axe from "axe-core";
import { act, type JSX } from "react";
import { createRoot } from "react-dom/client";

import { PanelContextProvider, type PanelContext } from "../src/components/context";
import { Panel } from "../src/components/panel";
import { ENGLISH } from "../src/i18n";
import type { Api } from "../src/net/api";
import type { Socket } from "../src/net/stream";
import { PanelModel, type NavigationRequest } from "../src/state/model";
import type * as wire from "../src/wire";
import { example } from "./examples";

const trans = ENGLISH as TranslationBundle;

export class Harness {
  readonly root = document.createElement("div");
  readonly requests: string[] = [];
  readonly watches: wire.Watch[] = [];
  readonly confirm = jest.fn(() => Promise.resolve(true));
  readonly choose = jest.fn(() => Promise.resolve(-1));
  readonly ask = jest.fn((): Promise<string | null> => Promise.resolve(null));
  readonly refreshFiles = jest.fn();
  readonly openNotebook = jest.fn();
  readonly insertTraining = jest.fn();
  readonly openPage = jest.fn();
  readonly openLog = jest.fn();
  /** Functions that return the simulated server's responses, keyed by the name of the method of `Api`. */
  answers: Record<string, (...args: never[]) => unknown> = {};

  constructor() {
    sessionStorage.clear();
    this.root.className = "fd fd-panel";
    document.body.replaceChildren(this.root);
    this.model = new PanelModel(this.api(), trans);
    this.model.start();
  }

  /** Render the panel, or other content in its place, and open the websocket. */
  async open(visible = true, content: JSX.Element = <Panel />): Promise<void> {
    const { model, confirm, openNotebook, openLog, openPage, insertTraining, choose, ask, refreshFiles } = this;
    const own = { openNotebook, openLog, openPage, insertTraining, choose, ask, refreshFiles };
    const context: PanelContext = { model, trans, visible, confirm, ...own };
    await act(async () => {
      this.reactRoot.render(<PanelContextProvider value={context}>{content}</PanelContextProvider>);
      this.socket.onopen?.(new Event("open"));
      await Promise.resolve();
    });
  }

  /** Unmount the panel and render it again, which simulates a reload of the page. */
  async reload(): Promise<void> {
    this.close();
    this.reactRoot = createRoot(this.root);
    await this.open();
  }

  close(): void {
    act(() => this.reactRoot.unmount());
  }

  /** Close the websocket, as if the connection were lost. */
  async loseConnection(): Promise<void> {
    await act(async () => {
      this.socket.onclose?.(new CloseEvent("close"));
      await settled();
    });
  }

  /** Make the page receive messages, as if the server had sent them. */
  async receive(...messages: wire.Message[]): Promise<void> {
    await act(async () => {
      for (const message of messages) {
        this.socket.onmessage?.(new MessageEvent("message", { data: JSON.stringify(message) }));
      }
      await settled();
    });
  }

  /** Make the page receive all messages of a `State`. `name` is the name of the example. */
  async receiveState(name: string): Promise<void> {
    const { hub, clusters, endpoints, resources, runs } = example<wire.State>(name);
    await this.receive(
      { kind: "clusters", hub, clusters },
      { kind: "endpoints", endpoints },
      { kind: "resources", resources },
      { kind: "runs", runs: runs.runs, total: runs.total },
    );
  }

  /** Send a navigation request, as the label on a cell does when the user clicks it. */
  async navigate(request: NavigationRequest): Promise<void> {
    await act(async () => {
      this.model.navigate(request);
      await settled();
    });
  }

  /** Return the element with this role and accessible name. */
  get(role: string, name: string | RegExp): HTMLElement {
    const all = [...this.root.querySelectorAll<HTMLElement>(SELECTORS[role] ?? `[role=${role}]`)];
    const found = all.find((element) =>
      typeof name === "string" ? accessibleName(element) === name : name.test(accessibleName(element)),
    );
    if (!found) throw new Error(`there is no ${role} ${String(name)} but ${all.map(accessibleName).join(", ")}`);
    return found;
  }

  async click(role: string, name: string | RegExp): Promise<void> {
    const element = this.get(role, name);
    await act(async () => {
      element.click();
      await settled();
    });
  }

  async type(role: string, name: string, value: string): Promise<void> {
    const element = this.get(role, name) as HTMLInputElement;
    const prototype: unknown = Object.getPrototypeOf(element);
    await act(async () => {
      Object.getOwnPropertyDescriptor(prototype, "value")?.set?.call(element, value);
      element.dispatchEvent(new Event(element instanceof HTMLSelectElement ? "change" : "input", { bubbles: true }));
      await settled();
    });
  }

  /** Return the serious accessibility violations that axe finds. Contrast is not checked, as jsdom has no layout. */
  async violations(): Promise<string[]> {
    const { violations } = await axe.run(this.root, { rules: { "color-contrast": { enabled: false } } });
    return violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join()}`);
  }

  private api(): Api {
    const ask =
      (name: string) =>
      (...args: unknown[]) => {
        this.requests.push(`${name} ${args.map((arg) => JSON.stringify(arg)).join(" ")}`);
        return Promise.resolve().then(() =>
          (this.answers[name] as ((...all: unknown[]) => unknown) | undefined)?.(...args),
        );
      };
    const clusters = ["startCluster", "scaleCluster", "stopCluster"];
    const names = ["state", ...clusters, "runs", "table", "run", "usage", "stopRun", "editRun", "deleteRun"];
    names.push("log", "logAt", "searchLogs", "stopEndpoint", "endpointExample", "callEndpoint");
    names.push("snapshots", "takeSnapshot", "snapshotJob", "snapshotChanges", "snapshotFiles", "fileVersions");
    names.push("restoreFile");
    const routes = Object.fromEntries(names.map((name) => [name, ask(name)]));
    return {
      ...routes,
      csvUrl: (id: string) => `/csv/${id}`,
      tensorBoardUrl: (id: string) => `/tensorboard/${id}`,
      openStream: () => this.socket,
    } as unknown as Api;
  }

  readonly socket: Socket = {
    onopen: null,
    onmessage: null,
    onclose: null,
    send: (text) => void this.watches.push(JSON.parse(text) as wire.Watch),
    close: () => undefined,
  };
  readonly model: PanelModel;
  private reactRoot = createRoot(this.root);
}

const SELECTORS: Record<string, string> = {
  button: "button:not([role])",
  textbox: "input:not([type]), input[type=text], textarea",
  number: "input[type=number]",
  checkbox: "input[type=checkbox]",
  combobox: "select",
  link: "a[href]",
  section: "section",
  list: "ul[aria-label]",
  searchbox: "input[type=search]",
  table: "table",
  form: "form",
};

/** Return the accessible name of an element. This supports only the kinds of elements that the panel uses. */
function accessibleName(element: HTMLElement): string {
  const own = element.id && document.querySelector(`label[for="${element.id}"]`);
  const label = (own || element.closest("label"))?.textContent;
  return element.getAttribute("aria-label") ?? (label || element.textContent.trim());
}

async function settled(): Promise<void> {
  for (let n = 0; n < 10; n += 1) await Promise.resolve();
}
