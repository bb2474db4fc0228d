import { retryDelay, SILENT_MS, Stream, type ConnectionState, type Socket } from "../../src/net/stream";
import type * as wire from "../../src/wire";
import { example, text } from "../examples";

class FakeSocket implements Socket {
  onopen: Socket["onopen"] = null;
  onmessage: Socket["onmessage"] = null;
  onclose: Socket["onclose"] = null;
  readonly sent: string[] = [];
  closed = false;

  send(message: string): void {
    this.sent.push(message);
  }
  close(): void {
    this.closed = true;
  }
  opens(): void {
    this.onopen?.(new Event("open"));
  }
  emits(message: string): void {
    this.onmessage?.(new MessageEvent("message", { data: message }));
  }
  breaks(): void {
    this.onclose?.(new CloseEvent("close"));
  }
}

const watch = example<wire.Watch>("watch");

function opened() {
  const sockets: FakeSocket[] = [];
  const links: ConnectionState[] = [];
  const messages: wire.Message[] = [];
  const stream = new Stream({
    open: () => {
      sockets.push(new FakeSocket());
      return sockets.at(-1) as FakeSocket;
    },
    onMessage: (message) => messages.push(message),
    onConnection: (link) => links.push(link),
    random: () => 1,
  });
  stream.start();
  return { stream, sockets, links, messages, last: () => sockets.at(-1) as FakeSocket };
}

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

test("delays grow up to half a minute, and are random", () => {
  expect([0, 1, 2, 3].map((failures) => retryDelay(failures, 1))).toEqual([1000, 2000, 4000, 8000]);
  expect(retryDelay(20, 1)).toBe(30_000);
  expect(retryDelay(2, 0)).toBe(2000);
});

test("the watch is sent when the connection opens, and when it changes", () => {
  const { stream, last } = opened();
  stream.watch(() => watch);
  expect(last().sent).toEqual([]);
  last().opens();
  stream.watch(() => ({ ...watch, runs: [] }));
  expect(last().sent.map((one) => (JSON.parse(one) as wire.Watch).runs.length)).toEqual([2, 0]);
});

test("a broken connection is opened again, and receives the watch again", () => {
  const { stream, sockets, links, last } = opened();
  stream.watch(() => watch);
  last().opens();
  last().breaks();
  expect(links).toEqual(["open", "lost"]);
  jest.advanceTimersByTime(999);
  expect(sockets).toHaveLength(1);
  jest.advanceTimersByTime(1);
  expect(sockets).toHaveLength(2);
  last().opens();
  expect(last().sent).toEqual([JSON.stringify(watch)]);
});

test("delays grow while the server is away, and a message resets them", () => {
  const { sockets, last } = opened();
  last().breaks();
  jest.advanceTimersByTime(1000);
  last().breaks();
  jest.advanceTimersByTime(1999);
  expect(sockets).toHaveLength(2);
  jest.advanceTimersByTime(1);
  last().opens();
  last().emits(text("beat.json"));
  last().breaks();
  jest.advanceTimersByTime(1000);
  expect(sockets).toHaveLength(4);
});

test("a silent connection is closed, a connection with heartbeats is kept", () => {
  const { sockets, last, messages } = opened();
  last().opens();
  for (let n = 0; n < 4; n += 1) {
    jest.advanceTimersByTime(SILENT_MS - 1);
    last().emits(text("beat.json"));
  }
  expect(sockets).toHaveLength(1);
  expect(messages).toHaveLength(4);
  const first = last();
  jest.advanceTimersByTime(SILENT_MS);
  expect(first.closed).toBe(true);
  jest.advanceTimersByTime(1000);
  expect(sockets).toHaveLength(2);
});

test("a visible page reconnects at once, and a connected page opens no second stream", () => {
  const { stream, sockets, last } = opened();
  last().opens();
  stream.reconnectNow();
  expect(sockets).toHaveLength(1);
  last().breaks();
  stream.reconnectNow();
  jest.advanceTimersByTime(5000);
  expect(sockets).toHaveLength(2);
});

test("a stopped stream does not reconnect", () => {
  const { stream, sockets, last } = opened();
  stream.stop();
  expect(last().closed).toBe(true);
  stream.reconnectNow();
  jest.advanceTimersByTime(100_000);
  expect(sockets).toHaveLength(1);
});
