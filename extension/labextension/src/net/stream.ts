/** The websocket of the page. It reconnects after an error, with growing delays. */

import type { Message, Watch } from "../wire";

/** Not open yet, open, or lost and about to be opened again. */
export type ConnectionState = "opening" | "open" | "lost";

/** The part of a `WebSocket` that the stream uses. */
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
  /** A number from 0 to 1; it spreads the reconnects of many pages over time. */
  random?: () => number;
}

/** The server sends a message at least every 15 seconds. */
export const SILENT_MS = 45_000;
const SHORTEST_MS = 1000;
const LONGEST_MS = 30_000;
const KINDS = ["clusters", "resources", "runs", "run", "log", "problem", "beat"];

/** Return the delay before the next attempt to connect, in milliseconds, after so many failures. */
export function retryDelay(failures: number, random: number): number {
  return Math.min(LONGEST_MS, SHORTEST_MS * 2 ** failures) * (0.5 + random / 2);
}

/** Return a message of the stream; null if this page does not know its kind, for example from a newer server. */
export function parse(text: string): Message | null {
  const value: unknown = JSON.parse(text);
  const kind = value && typeof value === "object" && "kind" in value ? value.kind : null;
  return typeof kind === "string" && KINDS.includes(kind) ? (value as Message) : null;
}

export class Stream {
  constructor(private readonly options: StreamOptions) {}

  /** Open the connection, and keep it open until `stop`. */
  start(): void {
    this.wanted = true;
    this.open();
  }

  stop(): void {
    this.wanted = false;
    clearTimeout(this.timer);
    this.close();
  }

  /** Reconnect at once if the connection is lost, because the page is visible again or its machine is online again. */
  reconnectNow(): void {
    if (!this.wanted || this.socket) return;
    clearTimeout(this.timer);
    this.open();
  }

  /** Send the server what the page watches, now and after each reconnect. */
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

  /** Treat the connection as lost unless a message arrives in time. */
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
