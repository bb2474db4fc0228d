/** Notifies the user of events of runs, in JupyterLab and, if the user has allowed it, in the browser. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Notification, type ICommandPalette } from "@jupyterlab/apputils";
import type { ISettingRegistry } from "@jupyterlab/settingregistry";

import { duration, title } from "../../format";
import type { Translator } from "../../i18n";
import { Commands, Plugins } from "../../ids";
import type { IPanelModel } from "../../state/model";
import { RunFollower, type RunEvent, type RunEventKind } from "../../state/runEvents";
import { askForPermission, browserPermission, refusalText, showInBrowser } from "./browser";

/** The settings in `schema/notifications.json`, which describes them. */
export type NotificationSettings = Readonly<Record<RunEventKind, boolean>> & {
  readonly hungMinutes: number;
  readonly browser: boolean;
  readonly shortSeconds: number;
};

export const DEFAULTS: NotificationSettings = {
  ended: true,
  failed: true,
  hung: true,
  nan: true,
  hungMinutes: 10,
  browser: false,
  shortSeconds: 30,
};

const LOOK_MS = 30_000;
const MOST_CHARACTERS = 200;
/** How long JupyterLab shows a notification. After that, it is in the notification centre. */
const CLOSE_MS = { success: 8_000, info: 8_000, warning: 30_000, error: 30_000 };

export function addNotifications(
  app: JupyterFrontEnd,
  model: IPanelModel,
  registry: ISettingRegistry | null,
  palette: ICommandPalette | null,
): void {
  const notifier = new Notifier(model);
  const loading = loadSettings(registry, model, notifier);
  notifier.changed = () => app.commands.notifyCommandChanged(Commands.notifyInBrowser);
  app.commands.addCommand(Commands.notifyInBrowser, {
    label: model.trans.__("Notifications of Runs in the Browser"),
    isToggled: () => notifier.notifiesInBrowser,
    execute: async () => {
      const browser = !notifier.notifiesInBrowser && (await notifier.ask());
      const settings = await loading;
      if (settings) await settings.set("browser", browser);
      else notifier.use({ ...notifier.settings, browser });
    },
  });
  palette?.addItem({ command: Commands.notifyInBrowser, category: "Farandole" });
  model.changed.connect(() => notifier.look());
  setInterval(() => notifier.look(), LOOK_MS);
}

/** Keep the notifier's settings equal to those of JupyterLab. Return null if JupyterLab has no valid settings. */
async function loadSettings(registry: ISettingRegistry | null, model: IPanelModel, notifier: Notifier) {
  try {
    const settings = (await registry?.load(Plugins.notifications)) ?? null;
    const read = () => notifier.use({ ...DEFAULTS, ...settings?.composite });
    settings?.changed.connect(read);
    read();
    return settings;
  } catch (error) {
    model.showProblem(model.trans.__("The default settings of notifications apply: %1", String(error)));
    return null;
  }
}

/** Follows the active runs, and shows a notification of each event that the settings select. */
export class Notifier {
  settings = DEFAULTS;
  /** Called when the settings have changed. */
  changed: () => void = () => undefined;

  constructor(private readonly model: IPanelModel) {}

  get notifiesInBrowser(): boolean {
    return this.settings.browser && browserPermission() === "granted";
  }

  use(settings: NotificationSettings): void {
    const turnedOn = settings.browser && !this.settings.browser;
    this.settings = settings;
    this.changed();
    if (turnedOn && browserPermission() !== "granted") this.offerPermission();
  }

  /** Ask the user for the browser's permission. Return false if it is refused, and show how to grant it. */
  async ask(): Promise<boolean> {
    const permission = await askForPermission();
    if (permission !== "granted") this.refuse();
    return permission === "granted";
  }

  look(): void {
    for (const event of this.follower.update(this.model.state, this.settings.hungMinutes, Date.now())) {
      if (this.settings[event.kind]) this.notify(event);
    }
    const runs = this.follower.ids;
    if (runs.join() === this.subscribed) return;
    const before = this.unsubscribe;
    this.subscribed = runs.join();
    this.unsubscribe = this.model.subscribe({ followed: runs });
    before();
  }

  private notify(event: RunEvent): void {
    const { trans } = this.model;
    const { run } = event;
    const open = () => this.model.navigate({ show: "run", run: run.id });
    const text = textOf(trans, event, this.settings.hungMinutes);
    const type = typeOf(event);
    const actions = [{ label: trans.__("Open the Run"), callback: open }];
    Notification.emit(text, type, { autoClose: CLOSE_MS[type], actions });
    const isShort = type === "success" && run.seconds < this.settings.shortSeconds;
    if (!this.settings.browser || (isShort && !document.hidden)) return;
    showInBrowser(`Farandole: ${title(run)}`, text, `farandole ${run.id} ${event.kind}`, open);
  }

  /** Say that the settings need a permission. Only a click on the notification's button asks for it. */
  private offerPermission(): void {
    if (browserPermission() !== "default") {
      this.refuse();
      return;
    }
    const { trans } = this.model;
    const text = trans.__("The settings ask for notifications in the browser, but this browser has no permission yet.");
    const actions = [{ label: trans.__("Allow…"), callback: () => void this.ask().then(this.changed) }];
    Notification.warning(text, { autoClose: CLOSE_MS.warning, actions });
  }

  private refuse(): void {
    const text = refusalText(this.model.trans, browserPermission());
    Notification.warning(text, { autoClose: CLOSE_MS.warning });
  }

  private readonly follower = new RunFollower();
  private subscribed = "";
  private unsubscribe: () => void = () => undefined;
}

function typeOf({ kind, run }: RunEvent): keyof typeof CLOSE_MS {
  if (kind === "ended") return run.status === "finished" ? "success" : "info";
  return kind === "failed" ? "error" : "warning";
}

function textOf(trans: Translator, { kind, run, series }: RunEvent, hungMinutes: number): string {
  const name = short(title(run));
  switch (kind) {
    case "ended":
      return run.status === "finished"
        ? trans.__("%1 has finished after %2.", name, duration(run.seconds))
        : trans.__("%1 was stopped after %2.", name, duration(run.seconds));
    case "failed": {
      const words = run.status === "lost" ? trans.__("%1 is lost", name) : trans.__("%1 has failed", name);
      return run.error ? `${words}: ${short(run.error)}` : `${words}.`;
    }
    case "hung":
      return trans.__("%1 continues, but has sent no report, progress or output for %2 min.", name, hungMinutes);
    case "nan":
      return trans.__("%1: NaN or infinite values in %2.", name, short(series.join(", ")));
  }
}

function short(text: string): string {
  return text.length > MOST_CHARACTERS ? `${text.slice(0, MOST_CHARACTERS)}…` : text;
}
