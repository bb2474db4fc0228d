/** Tests of the dashboard, which shows a run from the run store in the output of a cell. */

import { act } from "react";

import { Dashboard } from "../../../src/components/runs/dashboard";
import { RequestError } from "../../../src/net/requestError";
import type * as wire from "../../../src/wire";
import { example } from "../../examples";
import { Harness } from "../../harness";

const EVIL = '<img src=x onerror="window.hacked=1">';
const message = example<wire.RunMessage>("run");
const unknown = new RequestError(example<wire.ProblemMessage>("problem").problem, 404);

let harness: Harness;
const onKnown = jest.fn();

/** Return the example of a run with other values in its summary and in its view. */
function changed(summary: Partial<wire.RunSummary>, view: Partial<wire.RunView> = {}): wire.RunMessage {
  const { status = message.summary.status } = summary;
  return { ...message, summary: { ...message.summary, ...summary }, view: { ...message.view, status, ...view } };
}
const FINISHED = changed({ status: "finished", goes_on: false }, { ended: true, progress: [] });
const ORPHANED = changed({ status: "lost", goes_on: true, error: "the driver ended" }, { error: "the driver ended" });

/** Show the run of the example, which is in the server's run store as `stored`. */
async function show(stored: wire.RunMessage): Promise<void> {
  harness.answers["run"] = () => ({ ...example<wire.RunDetail>("run-detail"), ...stored });
  await harness.open(true, <Dashboard id={message.id} onKnown={onKnown} />);
}
const text = () => harness.root.textContent;
const status = () => harness.root.querySelector(".fd-status")?.textContent;
const stop = () => harness.get("button", "Stop") as HTMLButtonElement;
const watched = () => harness.watches.at(-1)?.runs ?? [];
const fetched = () => harness.requests.filter((request) => request.startsWith("run ")).length;

beforeEach(() => {
  onKnown.mockClear();
  harness = new Harness();
});
afterEach(() => {
  harness.close();
});

test("a run that was kept is drawn with one request, and is not subscribed to", async () => {
  await show(FINISHED);
  expect(status()).toBe("finished");
  expect(harness.root.querySelectorAll(".fd-chart")).toHaveLength(2);
  expect(harness.root.querySelectorAll(".fd-bars *")).toHaveLength(0);
  expect(stop().disabled).toBe(true);
  await harness.receive(example<wire.RunsMessage>("runs"));
  expect([watched(), fetched()]).toEqual([[], 1]);
  expect(onKnown).toHaveBeenLastCalledWith(true);
  expect(await harness.violations()).toEqual([]);
});

test("only notices of losses, hangs and failures have the colour of a warning", async () => {
  const lost = "rank 1 was lost";
  await show(changed({}, { notices: [lost, "rank 1 joined"], warnings: [lost] }));
  const notes = [...harness.root.querySelectorAll(".fd-note")];
  expect(notes.map((note) => [note.textContent, note.getAttribute("data-kind")])).toEqual([
    [lost, null],
    ["rank 1 joined", "info"],
  ]);
});

test("what a mode of fd.sync costs is shown in one line", async () => {
  await show(message);
  expect(text()).toContain(
    "Averages: local, fp16 every 16 steps · waiting for the network 2 % · 3 MiB per step and rank · 6 steps late",
  );
});

test("a share of waiting that is not known is left out", async () => {
  const sync = { mode: "step", waiting: null, bytes_per_step: 3_000_000, staleness: 0 };
  await show(changed({}, { sync }));
  expect(text()).toContain("Averages: step · 3 MiB per step and rank");
});

test("a run in which no rank uses such a mode has no such line", async () => {
  await show(changed({}, { sync: null }));
  expect(text()).not.toContain("Averages:");
});

test("the memory of the model has a table by rank, unless no rank has measured it", async () => {
  await show(message);
  await act(async () => {
    const details = harness.root.querySelector(".fd-memory") as HTMLDetailsElement;
    details.open = true;
    details.dispatchEvent(new Event("toggle"));
    await Promise.resolve();
  });
  const cells = () =>
    [...harness.get("table", "Memory of the model").querySelectorAll("td")].map((td) => td.textContent);
  expect(cells().slice(0, 5)).toEqual(["3 MiB", "3 MiB", "6 MiB", "700 MiB", "27 MiB"]);
  const [first, second] = message.view.ranks as [wire.RankRow, wire.RankRow];
  const unknown = { ...(first.model as wire.ModelMemory), activations: null, step_sent: null };
  await harness.receive(
    changed(
      {},
      {
        ranks: [
          { ...first, model: unknown },
          { ...second, model: null },
        ],
      },
    ),
  );
  expect(cells()).toEqual(["3 MiB", "3 MiB", "6 MiB", "–", "–"]);
  await harness.receive(changed({}, { ranks: [{ ...first, model: null }] }));
  expect(harness.root.querySelectorAll(".fd-memory")).toHaveLength(0);
});

test("an active run is drawn live until its end", async () => {
  await show(message);
  expect(watched()).toEqual([message.id]);
  for (const part of ["running", "2 ranks · horovod · 3,578 samples/s", "main-w1", "slowest", "40 of 128"])
    expect(text()).toContain(part);
  await harness.receive(changed({}, { notices: ["rank 1 is back"] }));
  const notice = harness.root.querySelector(".fd-notes .fd-note");
  expect([notice?.textContent, notice?.getAttribute("data-kind")]).toEqual(["rank 1 is back", "info"]);
  await harness.receive(FINISHED);
  expect(status()).toBe("finished");
  // The last points may be in a view that the server sends after the end.
  await harness.receive({ ...FINISHED, view: { ...FINISHED.view, series: [] } });
  expect(harness.root.querySelectorAll(".fd-chart")).toHaveLength(0);
});

test("a running run has about the time that it still takes, if that is known", async () => {
  await show(message);
  expect(text()).toMatch(/ · about 12:10 left · 2 ranks/);
  await harness.receive(changed({}, { seconds_left: null }));
  expect(text()).not.toContain("about");
  await harness.receive(changed({ status: "lost" }));
  expect(text()).not.toContain("about");
});

test("a run is drawn as soon as it is in the run store", async () => {
  harness.answers["run"] = () => Promise.reject(unknown);
  await harness.open(true, <Dashboard id={message.id} onKnown={onKnown} />);
  expect([text(), onKnown.mock.lastCall, harness.model.state.problems]).toEqual(["", [false], []]);
  harness.answers["run"] = () => message;
  await harness.receive(example<wire.RunsMessage>("runs"));
  expect([status(), onKnown.mock.lastCall]).toEqual(["running", [true]]);
});

test("a run is drawn when the server answers again, and stays while the server is down", async () => {
  harness.answers["run"] = () => Promise.reject(new RequestError({ ...unknown.problem, code: "unreachable" }, 0));
  await harness.open(true, <Dashboard id={message.id} onKnown={onKnown} />);
  harness.answers["run"] = () => message;
  await harness.loseConnection();
  expect(text()).toBe("");
  window.dispatchEvent(new Event("online"));
  await harness.open(true, <Dashboard id={message.id} onKnown={onKnown} />);
  expect(status()).toBe("running");
  await harness.loseConnection();
  expect(status()).toBe("running");
});

test("the button stops the run with the panel's route, and shows that it does", async () => {
  await show(message);
  harness.answers["stopRun"] = () => message.summary;
  await harness.click("button", "Stop");
  expect(harness.requests.at(-1)).toBe(`stopRun "${message.id}"`);
  expect(status()).toBe("stopping");
  expect((harness.get("button", "Stopping…") as HTMLButtonElement).disabled).toBe(true);
  await harness.receive(changed({ status: "interrupted", goes_on: false }, { ended: true }));
  expect([status(), stop().disabled]).toEqual(["interrupted", true]);
});

test("the cell says why its run was not stopped, and offers the button again", async () => {
  await show(message);
  harness.answers["stopRun"] = () => Promise.reject(unknown);
  await harness.click("button", "Stop");
  expect(harness.get("alert", unknown.message)).toBeTruthy();
  expect(stop().disabled).toBe(false);
});

test("a run whose kernel has ended says so, can be stopped, and is live again when another kernel attaches", async () => {
  await show(message);
  await harness.receive(ORPHANED);
  expect(status()).toBe("no kernel");
  expect(text()).toContain("%cluster attach");
  expect(harness.root.querySelector("[role=alert]")).toBeNull();
  expect(stop().disabled).toBe(false);
  await harness.receive(message);
  expect(status()).toBe("running");
  expect(text()).not.toContain("%cluster attach");
});

test("a lost run is subscribed to, because a notebook may attach to it", async () => {
  await show(changed({ status: "lost", goes_on: false }, { ended: true }));
  expect([status(), watched()]).toEqual(["lost", [message.id]]);
  await harness.receive(message);
  expect(status()).toBe("running");
});

test("one line per rank is drawn on request, also for a run that was kept", async () => {
  await show(FINISHED);
  await harness.click("button", "one line per rank");
  expect(harness.watches.at(-1)).toMatchObject({ runs: [message.id], by_rank: true });
  const lines = example<wire.RunMessage>("run-by-rank");
  await harness.receive({ ...lines, id: message.id });
  expect(harness.root.querySelector(".fd-legend")?.textContent).toContain("rank 1");
  await harness.click("button", "one line per rank");
  expect(harness.root.querySelector(".fd-legend")?.textContent ?? "").not.toContain("rank 1");
  expect(watched()).toEqual([]);
});

test("a chart gets a logarithmic scale", async () => {
  await show(FINISHED);
  const path = () => harness.root.querySelector("path.fd-mean")?.getAttribute("d");
  const before = path();
  await harness.click("button", "Logarithmic scale for loss");
  expect(path()).not.toBe(before);
});

test("the last log lines of the ranks are there, and text of a run is no HTML", async () => {
  const [rank] = message.view.ranks as [wire.RankRow];
  const series = message.view.series.slice(0, 1).map((one) => ({ ...one, name: EVIL }));
  await show(changed({ name: EVIL }, { notices: [EVIL], ranks: [{ ...rank, log: [EVIL], worker: EVIL }], series }));
  act(() => harness.root.querySelector("summary")?.click());
  expect(harness.root.querySelector(".fd-log pre")?.textContent).toBe(EVIL);
  expect(harness.root.querySelector("img")).toBeNull();
});
