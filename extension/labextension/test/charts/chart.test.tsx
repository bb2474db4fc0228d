/** Tests of the chart that the panel and the dashboard share. */

import { act, type ReactNode } from "react";
import { createRoot } from "react-dom/client";

import { Charts } from "../../src/charts/charts";
import { compare } from "../../src/charts/comparison";
import type { Comparison } from "../../src/charts/plot";
import { ENGLISH, TranslatorContext, type Translator } from "../../src/i18n";
import type * as wire from "../../src/wire";
import { example } from "../examples";

const view = example<wire.RunMessage>("run").view;
const [loss, accuracy] = view.series as [wire.Series, wire.Series];

function render(component: ReactNode): HTMLElement {
  const root = document.createElement("div");
  act(() => createRoot(root).render(component));
  return root;
}

function draw(series: wire.Series | Comparison, { trans = ENGLISH, log = false } = {}): HTMLElement {
  const chart = render(
    <TranslatorContext.Provider value={trans}>
      <Charts series={[series]} />
    </TranslatorContext.Provider>,
  );
  if (log) act(() => chart.querySelector<HTMLElement>("button[aria-pressed]")?.click());
  return chart;
}

function press(chart: HTMLElement, key: string): void {
  const event = new KeyboardEvent("keydown", { key, bubbles: true });
  act(() => void chart.querySelector("svg")?.dispatchEvent(event));
}

const label = (chart: HTMLElement) => chart.querySelector("svg")?.getAttribute("aria-label");
const colours = (chart: HTMLElement) =>
  [...chart.querySelectorAll<HTMLElement>(".fd-legend i")].map((key) => key.style.color);
const paths = (chart: HTMLElement) =>
  [...chart.querySelectorAll("path.fd-mean")].map((path) => path.getAttribute("d") ?? "");

test("a run has one colour in all charts, also if other runs have no line", () => {
  const other = { ...view, id: "other", name: "wide", series: [loss] };
  const [first, second] = compare([other, view]).map((series) => colours(draw({ ...series, bad: 0 })));
  expect(new Set(first).size).toBe(2);
  expect(second).toEqual([first?.[1]]);
});

test("one point is one point, and is visible", () => {
  const series = { ...accuracy, x: [1], mean: [0.5], low: [0.5], high: [0.5], last: 0.5, bad: 0 };
  const chart = draw(series);
  expect(label(chart)).toBe("accuracy: last value 0.5, 1 point");
  expect(chart.querySelectorAll("circle")).toHaveLength(1);
});

test("all texts of a chart are translated, with their numbers", () => {
  const translated: Translator = {
    __: (text, ...values: unknown[]) => `«${ENGLISH.__(text, ...values)}»`,
    _n: (one, many, count, ...values: unknown[]) => `«${ENGLISH._n(one, many, count, ...values)}»`,
  };
  for (const series of [loss, { ...loss, ranks: { 0: loss, 1: loss } }, { ...loss, mean: [], low: [], high: [] }]) {
    const [english, other] = [ENGLISH, translated].map((trans) => {
      const chart = draw({ ...series, bad: 2, bad_x: [1] }, { trans });
      press(chart, "ArrowLeft");
      return chart;
    }) as [HTMLElement, HTMLElement];
    expect(other.textContent.replace(/[«»]/g, "")).toBe(english.textContent);
    const words = other.textContent.replace(/«[^»]*»/g, "").replace(series.name, "");
    expect(words.replaceAll(series.x_label, "")).not.toMatch(/[a-z]{2,}/);
    expect(label(other)).toMatch(/«last value .+», «\d+ points» · «2 not finite»/);
  }
});

test("a chart of many ranks names twelve of them and counts the others", () => {
  const ranks = Object.fromEntries(Array.from({ length: 64 }, (_, n) => [n, { x: loss.x, mean: loss.mean }]));
  const chart = draw({ ...loss, ranks });
  press(chart, "ArrowLeft");
  expect(new Set(chart.querySelectorAll("path.fd-mean")).size).toBeGreaterThanOrEqual(64);
  for (const part of [".fd-legend", ".fd-tip"]) {
    const named = chart.querySelector(part)?.textContent ?? "";
    expect(named).toContain("rank 11");
    expect(named).toContain("… 52 more");
    expect(named).not.toContain("rank 12");
  }
});

test("a value that is not finite leaves a gap in the line and in the band, and a mark", () => {
  const values = [1, 2, null, 4, 5];
  const chart = draw({ ...loss, x: [0, 1, 2, 3, 4], mean: values, low: values, high: values, bad: 1, bad_x: [2] });
  for (const selector of ["path.fd-mean", "path.fd-band"]) {
    expect(chart.querySelector(selector)?.getAttribute("d")?.match(/M/g)).toHaveLength(2);
  }
  expect(chart.querySelectorAll(".fd-bad-mark")).toHaveLength(1);
});

test("a logarithmic scale has labels at round values, and leaves out values that it cannot show", () => {
  const mean = [0, 0.001, 0.1, 10];
  const series = { ...loss, x: [0, 1, 2, 3], mean, low: mean, high: mean, bad: 0, bad_x: [] };
  const labels = [...draw(series, { log: true }).querySelectorAll("g text")].map((text) => text.textContent);
  expect(labels).toEqual(expect.arrayContaining(["0.001", "0.1", "10"]));
  expect(labels.length).toBeLessThan(8);
  expect(paths(draw(series, { log: true }))[0]?.match(/[ML]/g)).toHaveLength(3);
  const negative = { ...series, mean: [-1], low: [-1], high: [-1], x: [0] };
  expect(draw(negative, { log: true }).textContent).toContain("nothing to draw on this scale yet");
});

test("the arrow keys read the values of a chart", () => {
  const chart = draw({ ...loss, x: [5, 6], mean: [1, 2], low: [1, 1.5], high: [1, 2.5], bad: 0, bad_x: [] });
  press(chart, "ArrowRight");
  expect(chart.querySelector(".fd-tip")?.textContent).toBe("step 6mean 21.5 to 2.5");
  press(chart, "ArrowLeft");
  expect(chart.querySelector(".fd-tip")?.textContent).toBe("step 5mean 1");
  expect(chart.querySelectorAll(".fd-guide")).toHaveLength(1);
});

test("a download that fails says why, and the next one removes the message", async () => {
  const click = jest.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation();
  Object.assign(URL, { createObjectURL: () => "blob:1", revokeObjectURL: jest.fn() });
  Object.assign(HTMLImageElement.prototype, { decode: () => Promise.reject(new Error("no picture")) });
  const chart = draw(loss);
  const download = (format: string) =>
    act(async () => {
      [...chart.querySelectorAll<HTMLElement>(".fd-menu button")].find((one) => one.textContent === format)?.click();
      for (let n = 0; n < 10; n += 1) await Promise.resolve();
    });
  await download("PNG");
  expect(chart.querySelector("[role=alert]")?.textContent).toBe(
    "This chart could not be downloaded as PNG. Error: no picture",
  );
  expect(click).not.toHaveBeenCalled();
  await download("CSV");
  expect(chart.querySelector("[role=alert]")).toBeNull();
  expect(click).toHaveBeenCalledTimes(1);
});
