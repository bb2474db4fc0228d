/** Tests of the comparison in the page of runs. */

import { isHigherBetter } from "../../../src/components/page/columns";
import { RunsPage } from "../../../src/components/page/runsPage";
import { RequestError } from "../../../src/net/requestError";
import { codeDifference, differences } from "../../../src/state/differences";
import type * as wire from "../../../src/wire";
import { example } from "../../examples";
import { Harness } from "../../harness";

const detail = example<wire.RunDetail>("run-detail");
const message = example<wire.RunMessage>("run");

test("keys with different values come first, also if a run does not have them", () => {
  expect(
    differences([
      { a: 1, b: "x", c: [2] },
      { a: 1, b: "y" },
    ]),
  ).toEqual([
    { key: "b", texts: ["x", "y"], same: false },
    { key: "c", texts: ["[2]", undefined], same: false },
    { key: "a", texts: ["1", "1"], same: true },
  ]);
});

test("the lines of a code are marked and numbered", () => {
  const [lines] = codeDifference("a\nb\nc", "a\nB\nc") ?? [];
  expect(lines?.map(({ mark, text, before, after }) => [mark, text, before, after])).toEqual([
    [" ", "a", 1, 1],
    ["-", "b", 2, null],
    ["+", "B", null, 2],
    [" ", "c", 3, 3],
  ]);
});

test.each(["accuracy", "val_acc", "F1", "test/r2", "AUC", "mAP"])("%s is better if it is higher", (name) => {
  expect(isHigherBetter(name)).toBe(true);
});

test.each(["loss", "error", "scored_loss", "perplexity", "mapping_time"])("%s is better if it is lower", (name) => {
  expect(isHigherBetter(name)).toBe(false);
});

describe("a comparison", () => {
  let harness: Harness;
  const other = { ...detail.view, id: "run-b", name: "wide" };
  const details: Record<string, wire.RunDetail> = {
    "run-a": { ...detail, view: { ...detail.view, id: "run-a" } },
    "run-b": { ...detail, config: { ...detail.config, lr: 0.5 }, code: detail.code + "\nmore()", view: other },
  };

  beforeEach(async () => {
    harness = new Harness();
    sessionStorage.setItem("farandole:page", "run-a run-b");
    harness.answers["run"] = (id: string) => details[id];
    await harness.open(true, <RunsPage store={null} />);
  });
  afterEach(() => harness.close());

  /** Make the page receive the views of both runs, the second with the series that `change` returns. */
  async function receive(change: (series: wire.Series[]) => wire.Series[]): Promise<void> {
    const views = Object.values(details).map(({ view }) => view);
    const series = [(all: wire.Series[]) => all, change];
    await harness.receive(
      ...views.map((view, n): wire.RunMessage => {
        return { ...message, id: view.id, view: { ...view, series: series[n]?.(view.series) ?? [] } };
      }),
    );
  }

  const section = (name: string) => harness.get("section", name);

  test("shows charts and what differs, with signs that do not need colours", async () => {
    await receive((series) => series);
    expect(harness.root.querySelectorAll(".fd-chart")).toHaveLength(2);
    expect(harness.root.querySelector(".fd-chart-tools")?.hasAttribute("open")).toBe(true);
    expect(harness.root.textContent).not.toContain("no series in common");
    const [lr, nesterov] = section("Hyper-parameters").querySelectorAll("tbody tr");
    expect([...(lr?.children ?? [])].map((cell) => cell.textContent)).toEqual(["≠ lr", "0.1", "0.5"]);
    expect([...(nesterov?.children ?? [])].map((cell) => cell.textContent)).toEqual(["nesterov", "true", "the same"]);
    expect(section("Versions").textContent).toContain("the same");
    expect(section("Code").querySelector("ins")?.textContent).toBe("more()");
    expect(section("Code").querySelector("tr[data-mark='+']")?.textContent).toContain("+");
    expect(await harness.violations()).toEqual([]);
  });

  test("names a run that cannot be read", async () => {
    harness.close();
    harness = new Harness();
    sessionStorage.setItem("farandole:page", "run-a gone run-b");
    harness.answers["run"] = (id: string) => {
      const found = details[id];
      if (!found) throw new RequestError({ code: "unknown", message: "run.json is damaged", runs: [] }, 404);
      return found;
    };
    await harness.open(true, <RunsPage store={null} />);
    await receive((series) => series);
    expect(harness.root.textContent).toContain("This run cannot be read and is left out below: gone");
    const [lr] = section("Hyper-parameters").querySelectorAll("tbody tr");
    expect([...(lr?.children ?? [])].map((cell) => cell.textContent)).toEqual(["≠ lr", "0.1", "0.5"]);
  });

  test("says if the runs have no series in common", async () => {
    await receive((series) => series.map((one) => ({ ...one, name: `other ${one.name}` })));
    expect(harness.root.textContent).toContain("no series in common");
  });
});
