/** Tests of a group of charts: the shared reading, the zoom, the x axis, the smoothing and the downloads. */

import axe from "axe-core";
import { act } from "react";
import { createRoot } from "react-dom/client";

import { Charts } from "../../src/charts/charts";
import { compare } from "../../src/charts/comparison";
import { Plot, type Charted } from "../../src/charts/plot";
import type * as wire from "../../src/wire";
import { example } from "../examples";

const view = example<wire.RunMessage>("run").view;
const flat = { mean: [1, 2, 3, 4], low: [1, 2, 3, 4], high: [1, 2, 3, 4], bad: 0, bad_x: [], ranks: null };
const ends = { last: 4, lowest: 1, highest: 4, epoch: [] };
const loss: wire.Series = { ...flat, ...ends, name: "loss", x_label: "step", x: [0, 10, 20, 30], time: [1, 2, 4, 8] };
const accuracy = { ...loss, name: "accuracy" };

let root: HTMLElement;
let unmount: () => void;

function draw(series: readonly Charted[], unfolded = false): void {
  root = document.createElement("div");
  document.body.replaceChildren(root);
  const react = createRoot(root);
  unmount = () => act(() => react.unmount());
  act(() => react.render(<Charts series={series} unfolded={unfolded} />));
}
afterEach(() => unmount());

const svgs = () => [...root.querySelectorAll(".fd-chart > svg")] as SVGSVGElement[];
const tips = () => [...root.querySelectorAll(".fd-tip")].map((tip) => tip.textContent);
const button = (label: string) => root.querySelector<HTMLElement>(`button[aria-label="${label}"]`);
const ticks = () => [...(svgs()[0]?.children ?? [])].map((child) => child.nodeName === "text" && child.textContent);

function press(key: string, chart = 0): void {
  act(() => void svgs()[chart]?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })));
}

/** Send events of the pointer at horizontal positions in the first chart, which is 320 pixels wide. */
function point(...events: [string, number][]): void {
  for (const [type, clientX] of events) {
    act(() => void svgs()[0]?.dispatchEvent(new MouseEvent(type, { clientX, bubbles: true })));
  }
}

function choose(selector: string, value: string): void {
  const element = root.querySelector<HTMLInputElement | HTMLSelectElement>(selector);
  const prototype = element instanceof HTMLSelectElement ? HTMLSelectElement.prototype : HTMLInputElement.prototype;
  act(() => {
    Object.getOwnPropertyDescriptor(prototype, "value")?.set?.call(element, value);
    element?.dispatchEvent(new Event(element instanceof HTMLSelectElement ? "change" : "input", { bubbles: true }));
  });
}

test("the x value that is read in one chart is shown in all charts with the same axis", () => {
  draw([loss, accuracy, { ...loss, name: "epochs", x_label: "epoch" }]);
  press("ArrowLeft", 1);
  expect(tips()).toEqual(["step 20mean 3", "step 20mean 3"]);
  point(["pointermove", 50]);
  expect(tips()).toEqual(["step 0mean 1", "step 0mean 1"]);
  expect(root.querySelectorAll(".fd-guide")).toHaveLength(2);
  act(() => void svgs()[0]?.dispatchEvent(new FocusEvent("focusout", { bubbles: true })));
  expect(tips()).toEqual([]);
});

test("the lines are not drawn again while the user reads values", () => {
  draw([loss, accuracy]);
  const drawn = jest.spyOn(Plot.prototype, "path");
  press("ArrowLeft");
  point(["pointermove", 60], ["pointermove", 200]);
  expect(tips()).toHaveLength(2);
  expect(drawn).not.toHaveBeenCalled();
  press("+");
  expect(drawn).toHaveBeenCalledTimes(2);
});

test("a range that the user drags is visible in all charts, until a double click", () => {
  draw([loss, accuracy]);
  point(["pointerdown", 130], ["pointermove", 240]);
  expect(root.querySelectorAll(".fd-selection")).toHaveLength(1);
  point(["pointerup", 240]);
  expect(root.querySelectorAll(".fd-selection")).toHaveLength(0);
  expect(ticks()).not.toContain("0");
  expect(button("Show the whole axis of accuracy")).not.toBeNull();
  act(() => void svgs()[1]?.dispatchEvent(new MouseEvent("dblclick", { bubbles: true })));
  expect(ticks()).toContain("0");
  expect(button("Show the whole axis of accuracy")).toBeNull();
});

test("a click and a range with fewer than two points do not zoom", () => {
  draw([loss]);
  point(["pointerdown", 130], ["pointerup", 132]);
  point(["pointerdown", 130], ["pointermove", 140], ["pointerup", 140]);
  expect(ticks()).toContain("0");
});

test("the keys zoom in and out, and show the whole axis", () => {
  draw([loss]);
  press("+");
  expect(ticks()).not.toContain("30");
  press("ArrowRight");
  expect(tips()).toEqual(["step 20mean 3"]);
  press("-");
  expect(button("Show the whole axis of loss")).toBeNull();
  press("=");
  press("0");
  expect(ticks()).toContain("30");
  expect(svgs()[0]?.closest("[data-lm-suppress-shortcuts]")).not.toBeNull();
});

test("a zoom ends when the user presses its button", () => {
  draw([loss]);
  press("+");
  act(() => button("Show the whole axis of loss")?.click());
  expect(ticks()).toContain("30");
});

test("the x axis is the time or the epoch, if they are known", () => {
  draw([{ ...loss, epoch: [0, 0, 1, 1] }]);
  const names = [...root.querySelectorAll("option")].map((option) => option.textContent);
  expect(names).toEqual(["step", "epoch", "time"]);
  choose("select", "time");
  press("ArrowLeft");
  expect(tips()).toEqual(["seconds 4mean 3"]);
  choose("select", "epoch");
  press("ArrowLeft");
  expect(tips()).toEqual(["epoch 1mean 3"]);
  unmount();
  draw([{ ...loss, time: [] }]);
  expect(root.querySelectorAll("option")).toHaveLength(1);
});

test("compared runs with different steps share the axis of time", () => {
  const other = { ...loss, x: [0, 1], mean: [5, 6], time: [3, 9] };
  draw(
    compare([
      { ...view, series: [loss] },
      { ...view, id: "other", name: "other", series: [other] },
    ]),
  );
  choose("select", "time");
  press("ArrowLeft");
  expect(tips()).toEqual(["seconds 8first-cnn 4other 6"]);
});

test("smoothing keeps the raw line, and a value outside of its limits is clamped with a message", () => {
  draw([loss], true);
  choose("input[type=range]", "0.5");
  expect(root.querySelectorAll("path.fd-raw")).toHaveLength(1);
  press("ArrowRight");
  expect(tips()).toEqual(["step 30mean 3.267 (4)"]);
  choose("input[type=number]", "2");
  expect(root.querySelector("[role=status]")?.textContent).toBe("The smoothing is 0 to 0.99; 0.99 is used.");
  expect(root.querySelector<HTMLInputElement>("input[type=range]")?.value).toBe("0.99");
  choose("input[type=number]", "0");
  expect(root.querySelectorAll("path.fd-raw")).toHaveLength(0);
  expect(root.querySelector("[role=status]")?.textContent).toBe("");
});

test("the settings are folded at first, unless they are wanted", () => {
  draw([loss]);
  expect(root.querySelector("details.fd-chart-tools")?.hasAttribute("open")).toBe(false);
  unmount();
  draw([loss], true);
  expect(root.querySelector("details.fd-chart-tools")?.hasAttribute("open")).toBe(true);
});

test("the charts have no accessibility faults", async () => {
  draw([loss, accuracy], true);
  press("+");
  press("ArrowLeft");
  root.querySelector(".fd-menu")?.setAttribute("open", "");
  const { violations } = await axe.run(root, { rules: { "color-contrast": { enabled: false } } });
  expect(violations.map(({ id }) => id).filter((id) => id !== "region")).toEqual([]);
});
