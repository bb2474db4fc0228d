/** Follows the model of a dashboard, and the next model of the same run once the first one's kernel has ended. */

import type { RunView } from "./wire";

interface Traits {
  view: Partial<RunView>;
  per_rank: boolean;
  log_scale: string[];
  stopping: boolean;
  shown: boolean;
}

/** The methods of anywidget's model that the dashboard uses. */
export interface Model {
  get<Name extends keyof Traits>(name: Name): Traits[Name];
  set<Name extends keyof Traits>(name: Name, value: Traits[Name]): void;
  save_changes(): void;
  send(message: unknown): void;
  on(event: string, callback: () => void): void;
  off(event: string, callback: () => void): void;
}

/** The document's event that announces the model of a new dashboard. */
const ANNOUNCEMENT = "farandole:dashboard";
/** The event with which the widget manager reports that a model's kernel has restarted. */
const DISCONNECTED = "comm_live_update";
/** A kernel sends a new view every second while it follows a run. After this time without one, it counts as ended. */
export const SILENT_MILLISECONDS = 15_000;

const EVENTS = ["change:view", "change:per_rank", "change:log_scale", "change:stopping"];

export class Follower {
  /** Whether the kernel that followed the run has ended. */
  orphaned = false;
  private successor: Model | null = null;
  private timer: number | undefined;
  private changes = 0;

  constructor(
    public model: Model,
    private readonly update: () => void,
  ) {
    this.listen();
    document.addEventListener(ANNOUNCEMENT, this.meet);
  }

  close(): void {
    document.removeEventListener(ANNOUNCEMENT, this.meet);
    this.ignore();
  }

  private listen(): void {
    for (const event of EVENTS) this.model.on(event, this.update);
    this.model.on("change:view", this.hear);
    this.model.on(DISCONNECTED, this.lose);
    this.wait();
  }

  private ignore(): void {
    for (const event of EVENTS) this.model.off(event, this.update);
    this.model.off("change:view", this.hear);
    this.model.off(DISCONNECTED, this.lose);
    window.clearTimeout(this.timer);
  }

  private wait(): void {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(this.lose, SILENT_MILLISECONDS);
  }

  private readonly hear = (): void => {
    this.wait();
    if (this.orphaned) {
      this.orphaned = false;
      this.update();
    }
    // The kernel prints lines of progress for clients that show no dashboard. Messages that the page sends before it has
    // opened a subshell wait until the cell has ended, so the page repeats its message less and less often.
    this.changes += 1;
    if (!this.model.get("shown") && Number.isInteger(Math.log2(this.changes))) this.model.send({ type: "shown" });
  };

  private readonly lose = (): void => {
    this.orphaned = !this.model.get("view").ended;
    if (this.orphaned && this.successor) this.succeed(this.successor);
    this.update();
  };

  private readonly meet = (event: Event): void => {
    const { detail: model } = event as CustomEvent<Model>;
    if (model.get("view").id !== this.model.get("view").id) return;
    this.successor = model;
    if (this.orphaned) this.lose();
  };

  private succeed(model: Model): void {
    this.ignore();
    this.model = model;
    this.successor = null;
    this.orphaned = false;
    this.changes = 0;
    this.listen();
  }
}

/** Announce the model of a new dashboard to dashboards of the same run whose kernels have ended. */
export function initialize({ model }: { model: Model }): void {
  document.dispatchEvent(new CustomEvent<Model>(ANNOUNCEMENT, { detail: model }));
}
