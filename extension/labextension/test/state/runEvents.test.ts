/** Tests of the events of runs of which the user is notified. */

import { RunFollower, type RunEvent } from "../../src/state/runEvents";
import { EMPTY, reduce, type PanelState } from "../../src/state/reducer";
import type * as wire from "../../src/wire";
import { example } from "../examples";

const MINUTE = 60_000;
const listed = example<wire.RunsMessage>("runs").runs[0] as wire.RunSummary;
const heard = example<wire.FollowedMessage>("followed");

/** Return a run of this test, which is active unless `changes` say otherwise. */
function run(changes: Partial<wire.RunSummary> = {}): wire.RunSummary {
  return { ...listed, id: "new", started: 2000, status: "running", goes_on: true, ...changes };
}

const ended = (status: wire.RunStatus) => run({ status, goes_on: false });

/** A page that receives messages, and asks for the events after each of them. */
class Page {
  state: PanelState = { ...EMPTY, connection: "open" };
  now = 0;
  readonly follower = new RunFollower();

  constructor(...runs: wire.RunSummary[]) {
    expect(this.list(...runs)).toEqual([]);
  }
  events(): string[] {
    return this.follower.update(this.state, 10, this.now).map(describeEvent);
  }
  list(...runs: wire.RunSummary[]): string[] {
    this.state = reduce(this.state, { kind: "runs", runs, total: runs.length }, this.now);
    return this.events();
  }
  hear(summary: wire.RunSummary, news: Partial<wire.FollowedMessage> = {}): string[] {
    this.state = reduce(this.state, { ...heard, id: summary.id, summary, bad: {}, ...news }, this.now);
    return this.events();
  }
  wait(minutes: number): string[] {
    const events: string[] = [];
    for (let minute = 0; minute < minutes; minute += 1) {
      this.now += MINUTE;
      events.push(...this.events());
    }
    return events;
  }
}

function describeEvent({ kind, run: { id }, series }: RunEvent): string {
  return [id, kind, ...series].join(" ");
}

describe("the end of a run", () => {
  test.each([
    ["finished", "ended"],
    ["interrupted", "ended"],
    ["failed", "failed"],
    ["lost", "failed"],
  ] as const)("with status %s is the event %s, once", (status, kind) => {
    const page = new Page();
    expect(page.list(run())).toEqual([]);
    expect(page.list(ended(status))).toEqual([`new ${kind}`]);
    expect(page.list(ended(status))).toEqual([]);
    expect(page.hear(ended(status))).toEqual([]);
    expect(page.follower.ids).toEqual([]);
    expect(page.list(ended(status))).toEqual([]);
  });

  test("is no event if the run had ended before the page was opened, or was copied to the folder since", () => {
    const page = new Page(ended("failed"));
    const copied = { ...ended("failed"), id: "copied", started: 1000 };
    expect(page.list(copied, ended("failed"))).toEqual([]);
    expect(page.follower.ids).toEqual([]);
  });

  test("is an event if the run was too short to be seen while it was active", () => {
    const page = new Page(run({ id: "old", started: 1000, status: "finished", goes_on: false }));
    expect(page.list(ended("failed"))).toEqual(["new failed"]);
  });

  test("is no event for a damaged run folder that appears", () => {
    expect(new Page().list(ended("lost"))).toEqual([]);
  });

  test("is an event after a time without connection, and a deleted run is forgotten", () => {
    const page = new Page(run(), run({ id: "deleted" }));
    page.state = { ...page.state, connection: "lost" };
    expect(page.events()).toEqual([]);
    page.state = { ...page.state, connection: "open" };
    expect(page.list(ended("finished"))).toEqual(["new ended"]);
    expect(page.follower.ids).toEqual(["new"]);
  });

  test("is an event if the list omits the run because of 51 newer runs", () => {
    const newer = Array.from({ length: 51 }, (_, n) => ({ ...ended("finished"), id: `newer ${n}`, started: 3000 + n }));
    const page = new Page(...newer, run());
    page.hear(run());
    page.state = reduce(page.state, { kind: "runs", runs: newer.slice(1), total: 52 }, page.now);
    expect(page.events()).toEqual([]);
    expect(page.hear(ended("failed"))).toEqual(["new failed"]);
    expect(page.follower.ids).toEqual([]);
  });

  test("is an event again if a lost run is attached and then finishes", () => {
    const page = new Page(run());
    expect(page.list(ended("lost"))).toEqual(["new failed"]);
    expect(page.list(run())).toEqual([]);
    expect(page.list(ended("finished"))).toEqual(["new ended"]);
  });
});

describe("NaN", () => {
  test("is an event once for each run, with the names of the series", () => {
    const page = new Page();
    page.list(run());
    expect(page.hear(run(), { bad: {} })).toEqual([]);
    expect(page.hear(run(), { bad: { loss: 1 } })).toEqual(["new nan loss"]);
    expect(page.hear(run(), { bad: { loss: 2, accuracy: 1 } })).toEqual([]);
  });

  test("in the first news is an event only if the run has started since the page was opened", () => {
    const page = new Page(run({ id: "old", started: 1000 }));
    expect(page.hear(run({ id: "old" }), { bad: { loss: 3 } })).toEqual([]);
    page.list(run({ id: "old" }), run());
    expect(page.hear(run(), { bad: { loss: 3 } })).toEqual(["new nan loss"]);
    expect(page.hear(run({ id: "old" }), { bad: { loss: 4 } })).toEqual(["old nan loss"]);
  });

  test("in the last report is an event after the end", () => {
    const page = new Page();
    page.list(run());
    expect(page.list(ended("finished"))).toEqual(["new ended"]);
    expect(page.hear(ended("finished"), { bad: { loss: 1 } })).toEqual(["new nan loss"]);
  });
});

describe("a run without activity", () => {
  test("is an event once, after the given minutes", () => {
    const page = new Page(run());
    page.hear(run());
    expect(page.wait(9)).toEqual([]);
    expect(page.wait(1)).toEqual(["new hung"]);
    expect(page.wait(30)).toEqual([]);
  });

  test("is none after a sign of life", () => {
    const page = new Page(run());
    page.hear(run());
    page.wait(9);
    page.hear(run(), { activity: "another" });
    expect(page.wait(9)).toEqual([]);
    expect(page.wait(1)).toEqual(["new hung"]);
  });

  test("is an event although its name changes, or the page has connected again", () => {
    const page = new Page(run());
    page.hear(run());
    page.wait(9);
    page.hear(run({ name: "renamed" }));
    expect(page.wait(1)).toEqual(["new hung"]);
  });

  test("is none while the page has no connection or the computer is suspended", () => {
    const page = new Page(run());
    page.hear(run());
    page.state = { ...page.state, connection: "lost" };
    expect(page.wait(60)).toEqual([]);
    page.state = { ...page.state, connection: "open" };
    page.now += 600 * MINUTE;
    expect(page.events()).toEqual([]);
  });

  test("is none if the run has no driver, and therefore no news", () => {
    const page = new Page(run({ status: "lost" }));
    page.hear(run({ status: "lost" }));
    expect(page.wait(60)).toEqual([]);
  });
});
