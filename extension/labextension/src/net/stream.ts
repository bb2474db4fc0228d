/** The page's websocket to the notebook server. After an error, it reconnects with increasing delays. */

import type { Message, Watch } from "../wire";

/** The connection is being opened for the first time, is open, or was lost and will be opened again. */
export type ConnectionState = "opening" | "open" | "lost";

/** The properties and methods of a `WebSocket` that the stream uses. */
export interface Socket {
  onopen: ((event: Event) => unknown) | null;
  onmessage: ((event: MessageEvent) => unknown) | null;
  onclose: ((event: CloseEvent) => unknown) | null;
  send(text: string): void;
  close(): void;
}

export interface StreamOptions {
  open: () => Socket;
  onMessage: (message: Message) => void;
  onConnection: (state: ConnectionState) => void;
  /** Returns a random number from 0 to 1, which makes many pages reconnect at different times. */
  random?: () => number;
}

/** A connection without messages for this long is treated as lost. The server sends one at least every 15 seconds. */
export const SILENT_MS = 45_000;
const SHORTEST_MS = 1000;
const LONGEST_DELAY_MS = 30_000;
const KINDS = ["clusters", "endpoints", "resources", "runs", "run", "followed", "log", "problem", "beat"];

/** Return how long to wait, in milliseconds, before the next attempt to connect after this many failures. */
export function retryDelay(failures: number, random: number): number {
  return Math.min(LONGEST_DELAY_MS, SHORTEST_MS * 2 ** failures) * (0.5 + random / 2);
}

/** Parse a message. Return null if this page does not know its kind, which a newer server may have introduced. */
export function parse(text: string): Message | null {
  const value: unknown = JSON.parse(text);
  const kind = value && typeof value === "object" && "kind" in value ? value.kind : null;
  return typeof kind === "string" && KINDS.includes(kind) ? (value as Message) : null;
}

export class Stream {
  constructor(private readonly options: StreamOptions) {}

  /** Open the connection and keep it open until `stop` is called. */
  start(): void {
    this.wanted = true;
    this.open();
  }

  stop(): void {
    this.wanted = false;
    clearTimeout(this.timer);
    this.close();
  }

  /** If the connection is lost, reconnect immediately. The page calls this when it is visible or online again. */
  reconnectNow(): void {
    if (!this.wanted || this.socket) return;
    clearTimeout(this.timer);
    this.open();
  }

  /** Send the page's subscriptions, which `watch` returns, to the server now and after each reconnect. */
  watch(watch: () => Watch): void {
    this.current = watch;
    if (this.isOpen) this.socket?.send(JSON.stringify(watch()));
  }

  private open(): void {
    const socket = this.options.open();
    this.socket = socket;
    this.expectMessage();
    socket.onopen = () => {
      this.isOpen = true;
      this.options.onConnection("open");
      if (this.current) socket.send(JSON.stringify(this.current()));
    };
    socket.onmessage = (event) => this.receive(String(event.data));
    socket.onclose = () => this.reconnectLater();
  }

  private receive(text: string): void {
    this.failures = 0;
    this.expectMessage();
    const message = parse(text);
    if (message) this.options.onMessage(message);
  }

  /** Start the timer that treats the connection as lost unless a message arrives in time. */
  private expectMessage(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.reconnectLater(), SILENT_MS);
  }

  private reconnectLater(): void {
    clearTimeout(this.timer);
    this.close();
    if (!this.wanted) return;
    const delay = retryDelay(this.failures, (this.options.random ?? Math.random)());
    this.failures += 1;
    this.timer = setTimeout(() => this.open(), delay);
    this.options.onConnection("lost");
  }

  private close(): void {
    const socket = this.socket;
    this.socket = null;
    this.isOpen = false;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  private socket: Socket | null = null;
  private isOpen = false;
  private wanted = false;
  private failures = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private current: (() => Watch) | null = null;
}
