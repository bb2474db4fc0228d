/** Notifications that the browser shows outside of the page. */

import type { Translator } from "../../i18n";

/** Whether the browser shows notifications of this page, and otherwise why not. */
export type BrowserPermission = "granted" | "default" | "denied" | "insecure" | "unsupported";

export function browserPermission(): BrowserPermission {
  if (!window.isSecureContext) return "insecure";
  return "Notification" in window ? window.Notification.permission : "unsupported";
}

/** Ask the user for permission. Call this only after a click, because browsers refuse it otherwise. */
export async function askForPermission(): Promise<BrowserPermission> {
  return browserPermission() === "default" ? window.Notification.requestPermission() : browserPermission();
}

/** Return why the browser shows no notifications, and the remedy. JupyterLab cuts texts after 140 characters. */
export function refusalText(trans: Translator, permission: BrowserPermission): string {
  switch (permission) {
    case "insecure":
      return trans.__("Browsers show notifications only for pages with HTTPS. Ask your administrator for HTTPS.");
    case "unsupported":
      return trans.__("This browser shows no notifications of pages. JupyterLab still shows them.");
    default:
      return trans.__(
        "The browser forbids notifications of this page. Click the icon beside the address, allow notifications, " +
          "and run the command again.",
      );
  }
}

/**
 * Show a notification if the browser allows it. Notifications of several pages with the same tag are shown as one.
 */
export function showInBrowser(title: string, body: string, tag: string, open: () => void): void {
  if (browserPermission() !== "granted") return;
  let shown: Notification;
  try {
    shown = new window.Notification(title, { body, tag });
  } catch (error) {
    // Chromium on Android grants the permission, but lets only service workers show notifications.
    if (error instanceof TypeError) return;
    throw error;
  }
  shown.onclick = () => {
    window.focus();
    shown.close();
    open();
  };
}
