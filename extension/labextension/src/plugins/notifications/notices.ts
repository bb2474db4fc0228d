/** Shows the notices of the hub's operators: messages, and why servers were stopped. */

import { Dialog, Notification, showDialog } from "@jupyterlab/apputils";

import { clock } from "../../format";
import type { Translator } from "../../i18n";
import type { IPanelModel } from "../../state/model";
import type { Hub, HubNotice } from "../../wire";

/** JupyterLab cuts longer texts of notifications. */
const MOST_CHARACTERS = 140;

export function addNotices(model: IPanelModel): void {
  const board = new NoticeBoard(model.trans);
  let last: Hub | null = null;
  const look = () => {
    const { hub } = model.state;
    // Nobody sees the notifications of a hidden page. Another page of the browser may show them first.
    if (!hub || hub === last || document.hidden) return;
    board.show(hub);
    last = hub;
  };
  model.changed.connect(look);
  document.addEventListener("visibilitychange", look);
  look();
}

/** Shows each notice once in each browser, or once on each page if the browser stores nothing. */
class NoticeBoard {
  constructor(private readonly trans: Translator) {}

  show({ user, notices }: Hub): void {
    const key = `farandole:notices:${user ?? ""}`;
    const shown = new Set([...this.shown, ...stored(key)]);
    const fresh = notices.filter((notice) => !shown.has(identity(notice)));
    if (!fresh.length) return;
    for (const notice of fresh.reverse()) this.notify(notice);
    this.shown = notices.map(identity);
    store(key, this.shown);
  }

  private notify(notice: HubNotice): void {
    const { trans } = this;
    const text = `${clock(notice.time, new Date())}: ${sentence(trans, notice)}`;
    const buttons = [Dialog.okButton({ label: trans.__("Close") })];
    const open = (event: MouseEvent) => {
      // JupyterLab would close the notification.
      event.preventDefault();
      void showDialog({ title: trans.__("Notice from %1", notice.by), body: text, buttons });
    };
    const actions = text.length > MOST_CHARACTERS ? [{ label: trans.__("Show the Text"), callback: open }] : [];
    Notification.emit(text, "warning", { autoClose: false, actions });
  }

  /** The identities of the notices that this page has shown. */
  private shown: readonly string[] = [];
}

/** Return what distinguishes a notice from others. The hub corrects the servers of a notice if some do not stop. */
function identity({ time, servers }: HubNotice): string {
  return JSON.stringify([time, ...servers]);
}

/** Return the sentence of the hub's pages. The translator does not get the operator's text, as it replaces "%% ". */
function sentence(trans: Translator, { by, text, servers }: HubNotice): string {
  if (!servers.length) return `${trans.__("message from %1", by)}: ${text}`;
  const names = servers.map((name) => (name ? trans.__("the server %1", name) : trans.__("your notebook server")));
  return `${trans.__("%1 stopped %2. Reason:", by, names.join(", "))} ${text || trans.__("none given.")}`;
}

/** Return the notices that this browser has shown. Its storage may be forbidden or contain anything. */
function stored(key: string): unknown[] {
  try {
    const shown: unknown = JSON.parse(window.localStorage.getItem(key) ?? "[]");
    return Array.isArray(shown) ? shown : [];
  } catch {
    return [];
  }
}

function store(key: string, shown: readonly string[]): void {
  try {
    window.localStorage.setItem(key, JSON.stringify(shown));
  } catch {
    // The storage is forbidden or full, so another page shows these notices again.
  }
}
