/** The model that all plugins of the page share. It keeps the state, receives messages, and sends requests. */

import type { TranslationBundle } from "@jupyterlab/translation";
import { Token } from "@lumino/coreutils";
import { Signal, type ISignal } from "@lumino/signaling";

import type { Api } from "../net/api";
import { RequestError } from "../net/requestError";
import { Stream, type ConnectionState } from "../net/stream";
import type { Message, Watch } from "../wire";
import { logKey } from "./logs";
import { EMPTY, forget, reduce, withProblem, type PanelState } from "./reducer";
import { dropped, isSame, watchOf, type Subscription } from "./subscriptions";

/** A request to show a run, the form that starts a cluster, or the earlier versions of a file, in the panel. */
export interface NavigationRequest {
  readonly show: "run" | "start" | "versions";
  readonly run: string;
  /** The path of the file in JupyterLab's file browser. */
  readonly file?: string;
}

export interface IPanelModel {
  readonly api: Api;
  readonly trans: TranslationBundle;
  readonly state: PanelState;
  readonly changed: ISignal<IPanelModel, void>;
  readonly navigation: ISignal<IPanelModel, NavigationRequest>;
  /** Subscribe to runs and logs until the returned function is called. */
  subscribe(subscription: Subscription): () => void;
  /** Send a request. If the request fails, show the reason to the user and return null. */
  attempt<T>(request: () => Promise<T>): Promise<T | null>;
  /** Show a message about a problem until the user dismisses it. */
  showProblem(message: string): void;
  dismiss(message: string): void;
  navigate(request: NavigationRequest): void;
}

export const IPanelModel = new Token<IPanelModel>("farandole:IPanelModel", "The page's state of clusters and runs.");

export class PanelModel implements IPanelModel {
  constructor(
    readonly api: Api,
    readonly trans: TranslationBundle,
  ) {
    this.stream = new Stream({
      open: () => api.openStream(),
      onMessage: (message) => this.receive(message),
      onConnection: (connection) => this.setConnection(connection),
    });
    this.stream.watch(() => this.watch());
  }

  get state(): PanelState {
    return this.current;
  }

  start(): void {
    this.stream.start();
    window.addEventListener("online", () => this.stream.reconnectNow());
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.stream.reconnectNow();
      this.updateWatch();
    });
  }

  subscribe(subscription: Subscription): () => void {
    this.subscriptions.add(subscription);
    this.updateWatch();
    return () => {
      if (this.subscriptions.delete(subscription)) this.updateWatch();
    };
  }

  async attempt<T>(request: () => Promise<T>): Promise<T | null> {
    try {
      return await request();
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      this.setState(withProblem(this.current, error.problem));
      return null;
    }
  }

  showProblem(message: string): void {
    this.setState(withProblem(this.current, { code: "failed", message, runs: [] }));
  }

  dismiss(message: string): void {
    const problems = this.current.problems.filter((problem) => problem.message !== message);
    this.setState({ ...this.current, problems });
  }

  navigate(request: NavigationRequest): void {
    this.navigation.emit(request);
  }

  /** Send the subscriptions to the server. Several changes in the same JavaScript task are sent together. */
  private updateWatch(): void {
    if (this.updating) return;
    this.updating = true;
    queueMicrotask(() => {
      this.updating = false;
      const watch = this.watch();
      if (isSame(watch, this.sent)) return;
      const gone = dropped(this.sent, watch);
      this.sent = watch;
      this.setState(forget(this.current, gone));
      this.stream.watch(() => this.watch());
    });
  }

  private watch(): Watch {
    const watch = watchOf(this.subscriptions, this.current.logs);
    return { ...watch, seen: watch.seen && !document.hidden };
  }

  private receive(message: Message): void {
    if (this.isWatched(message)) this.setState(reduce(this.current, message, Date.now()));
  }

  /** Return false for a message about a run or log from which the page has unsubscribed in the meantime. */
  private isWatched(message: Message): boolean {
    if (message.kind === "run") return this.sent.runs.includes(message.id);
    if (message.kind === "followed") return this.sent.followed.includes(message.id);
    return message.kind !== "log" || this.sent.logs.some((log) => logKey(log) === logKey(message.part));
  }

  private setConnection(connection: ConnectionState): void {
    this.setState({ ...this.current, connection, failure: connection === "open" ? null : this.current.failure });
    if (connection === "lost") void this.findFailure();
  }

  /** Find out why the connection failed by sending a plain request, because a websocket does not report the reason. */
  private async findFailure(): Promise<void> {
    const error: unknown = await this.api.state().then(
      () => null,
      (reason: unknown) => reason,
    );
    const failure = error instanceof RequestError ? { status: error.status, message: error.message } : null;
    if (this.current.connection === "lost") this.setState({ ...this.current, failure });
  }

  private setState(state: PanelState): void {
    if (state === this.current) return;
    this.current = state;
    this.changed.emit();
  }

  readonly changed: Signal<IPanelModel, void> = new Signal(this);
  readonly navigation: Signal<IPanelModel, NavigationRequest> = new Signal(this);
  private readonly stream: Stream;
  private readonly subscriptions = new Set<Subscription>();
  private current: PanelState = EMPTY;
  private sent: Watch = { kind: "watch", seen: false, runs: [], followed: [], by_rank: false, logs: [] };
  private updating = false;
}
