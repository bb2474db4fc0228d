import { append, logKey, MOST, readable, type Log } from "../../src/state/logs";
import type { LogPart } from "../../src/wire";

function part(offset: number, text: string, size?: number): LogPart {
  const next = offset + new TextEncoder().encode(text).length;
  return { run: "r", rank: 0, worker: null, offset, next, size: size ?? next, text };
}

function whole(...parts: LogPart[]): Log | undefined {
  return parts.reduce<Log | undefined>(append, undefined);
}

test("parts are joined", () => {
  expect(whole(part(0, "one\n"), part(4, "two\n"))).toEqual({ text: "one\ntwo\n", offset: 0, next: 8, size: 8 });
});

test("text that arrives twice after a reconnect is shown once", () => {
  expect(whole(part(0, "one\n"), part(0, "one\n", 8), part(4, "two\n"))?.text).toBe("one\ntwo\n");
  expect(whole(part(0, "one\n"), part(2, "e\ntwo\n"))?.text).toBe("one\ntwo\n");
});

test("offsets count bytes, not characters", () => {
  expect(whole(part(0, "ä…"), part(2, "…!"))?.text).toBe("ä…!");
});

test("a gap is shown", () => {
  expect(whole(part(0, "one\n"), part(100, "far"))?.text).toBe("one\n\n…\nfar");
});

test("a truncated log starts again", () => {
  expect(whole(part(0, "a long log\n"), part(0, "new"))?.text).toBe("new");
});

test("a long log keeps its last complete lines", () => {
  const line = "0123456789abcde\n";
  const log = whole(part(0, line.repeat(MOST / 16 + 100)));
  expect(log?.text.length).toBeLessThanOrEqual(MOST);
  expect(log?.text.startsWith(line)).toBe(true);
  expect(log?.offset).toBe(16 * (MOST / 16 + 100) - (log?.text.length ?? 0));
  expect(whole(part(0, line), part(16, line.repeat(MOST / 16)))?.offset).toBeGreaterThan(0);
});

test("a log is shown as in a terminal", () => {
  expect(readable("\u001b[31mred\u001b[0m 40%\r 41%")).toBe(" 41%");
  expect(readable("done\r\nnext\r")).toBe("done\nnext");
  expect(readable("\u001b]0;title\u0007text")).toBe("text");
});

test("logs of ranks and workers have different keys", () => {
  expect(logKey({ run: "r", rank: 1, worker: null })).not.toBe(logKey({ run: "r", rank: 0, worker: null }));
  expect(logKey({ run: null, rank: null, worker: "w" })).toBe("worker w");
});
