/** Tests of the functions behind the charts: smoothing, axes, and the files of a chart. */

import { axesOf, onAxis } from "../../src/charts/axis";
import { compare } from "../../src/charts/comparison";
import { csvOf, pngOf, save, svgOf } from "../../src/charts/download";
import { Plot, type Charted } from "../../src/charts/plot";
import { smoothed, smoothingOf } from "../../src/charts/smoothing";
import { ENGLISH } from "../../src/i18n";
import type * as wire from "../../src/wire";
import { example } from "../examples";

const view = example<wire.RunMessage>("run").view;
const flat = { mean: [1, 2, 3], low: [0, 1, 2], high: [2, 3, 4], bad: 0, bad_x: [], ranks: null };
const ends = { last: 3, lowest: 0, highest: 3, epoch: [0, 1, 1] };
const loss: wire.Series = { ...flat, ...ends, name: "loss", x_label: "step", x: [0, 1, 2], time: [1, 2, 4] };

function plot(series: Charted, smoothing = 0, high?: number): Plot {
  const range = high === undefined ? null : { label: series.x_label, low: 0, high };
  return new Plot(series, { log: false, smoothing, range }, 320, ENGLISH);
}

describe("smoothing", () => {
  test("is the moving average of TensorBoard, which has no bias at the beginning", () => {
    expect(smoothed([2, 2, 2], 0.9).map((value) => Number(value?.toFixed(9)))).toEqual([2, 2, 2]);
    expect(smoothed([0, 3, null, 6], 0.5)).toEqual([0, 2, null, (0.5 * 6 + 0.25 * 3) / 0.875]);
  });
  test("is from 0 to 0.99", () => {
    expect(["2", "-1", "0.6", "", "nothing"].map(smoothingOf)).toEqual([0.99, 0, 0.6, 0, 0]);
  });
});

describe("axes", () => {
  test("points within an epoch are spread over the epoch", () => {
    const series = { ...loss, x: [0, 5, 10, 15], epoch: [2, 2, 3, 3], time: [] };
    expect(onAxis(series, "epoch").x).toEqual([2, 2.5, 3, 3.5]);
    expect(axesOf([series])).toEqual(["reported", "epoch"]);
  });
  test("a point that is the mean over several epochs is in the middle of them", () => {
    // Epochs 0 to 11 of 8 steps each, in points of 32 steps.
    const series = { ...loss, x: [15.5, 47.5, 79.5], epoch: [3, 7, 11], time: [] };
    const places = onAxis(series, "epoch").x.map(Number);
    [2, 6, 10].forEach((middle, n) => expect(Math.abs((places[n] ?? 0) - middle)).toBeLessThanOrEqual(0.5));
  });
  test("a report of a single step has the place of its epoch, even if epochs are left out", () => {
    const series = { ...loss, x: [0, 500, 1000], epoch: [0, 5, 10], time: [] };
    expect(onAxis(series, "epoch").x).toEqual([0, 5, 10]);
  });
  test("the lines and marks of ranks move too", () => {
    const moved = onAxis({ ...loss, bad_x: [2], ranks: { 1: { x: [1, 2], mean: [5, 6] } } }, "time");
    expect([moved.x_label, moved.bad_x, moved.ranks?.[1]?.x]).toEqual(["seconds", [4], [2, 4]]);
  });
  test("a chart stays on its own axis if one of its runs has no times", () => {
    const old = { ...loss, time: [], epoch: [] };
    const [both] = compare([
      { ...view, series: [loss] },
      { ...view, id: "old", series: [old] },
    ]) as [Charted];
    expect(axesOf([both])).toEqual(["reported"]);
    expect(onAxis(both, "time")).toBe(both);
    expect(axesOf([both, loss])).toEqual(["reported", "epoch", "time"]);
  });
  test("runs that report by step and by epoch name both axes", () => {
    const views = [loss, { ...loss, x_label: "epoch" }].map((one, n) => ({ ...view, id: `${n}`, series: [one] }));
    expect(compare(views)[0]?.x_label).toBe("step / epoch");
  });
});

describe("CSV", () => {
  test("contains the drawn points", () => {
    expect(csvOf(plot(loss))).toBe("line,step,value,low,high\nmean,0,1,0,2\nmean,1,2,1,3\nmean,2,3,2,4\n");
    expect(csvOf(plot(loss, 0.5, 1)).split("\n")[0]).toBe("line,step,value,smoothed,low,high");
    expect(csvOf(plot(loss, 0, 1)).split("\n")).toHaveLength(4);
  });
  test("quotes the names of runs, and leaves gaps empty", () => {
    const series = { ...loss, mean: [1, null, 3] };
    const [both] = compare([{ ...view, name: 'a, "b"', series: [series] }]) as [Charted];
    expect(csvOf(plot(both)).split("\n").slice(0, 3)).toEqual(["line,step,value", '"a, ""b""",0,1', '"a, ""b""",1,']);
  });
});

describe("pictures", () => {
  const svg = () => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    element.innerHTML = '<path class="fd-mean" d="M0,0" style="stroke: rgb(1, 2, 3)"></path>';
    document.body.replaceChildren(element);
    return element;
  };
  const parsed = (text: string) => new DOMParser().parseFromString(text, "image/svg+xml").documentElement;

  test("an SVG file has a background, a title, a legend and its styles", () => {
    const file = parsed(svgOf(svg(), plot(loss)));
    expect(file.querySelector("rect")?.getAttribute("fill")).toBe("white");
    expect(file.querySelector("path")?.getAttribute("stroke")).toBe("rgb(1, 2, 3)");
    expect([...file.querySelectorAll("text")].map((text) => text.textContent)).toEqual(["loss", "mean"]);
    expect(file.getAttribute("viewBox")).toBe("0 -18 320 226");
  });
  test("names with markup or characters that XML does not allow are text", () => {
    const file = parsed(svgOf(svg(), plot({ ...loss, name: "<script>\u0000\ud800&" })));
    expect(file.querySelector("parsererror, script")).toBeNull();
    expect(file.querySelector("text")?.textContent).toBe("<script>\ufffd\ufffd&");
  });
  test("a picture that the browser cannot draw is an error", async () => {
    Object.assign(HTMLImageElement.prototype, { decode: () => Promise.resolve() });
    const getContext = jest.spyOn(HTMLCanvasElement.prototype, "getContext").mockReturnValue(null);
    HTMLCanvasElement.prototype.toBlob = (callback) => callback(new Blob(["png"]));
    await expect(pngOf(svg(), plot(loss))).rejects.toThrow("the browser cannot draw this picture");
    const drawImage = jest.fn();
    getContext.mockReturnValue({ drawImage } as unknown as RenderingContext);
    expect((await pngOf(svg(), plot(loss))).size).toBe(3);
    expect(drawImage).toHaveBeenCalledWith(expect.anything(), 0, 0, 640, 452);
    HTMLCanvasElement.prototype.toBlob = (callback) => callback(null);
    await expect(pngOf(svg(), plot(loss))).rejects.toThrow("the browser cannot draw this picture");
  });
  test("a file has a plain name, and is kept until the browser has read it", () => {
    jest.useFakeTimers();
    const clicked: string[] = [];
    const revokeObjectURL = jest.fn();
    Object.assign(URL, { createObjectURL: () => "blob:1", revokeObjectURL });
    HTMLAnchorElement.prototype.click = function (this: HTMLAnchorElement) {
      clicked.push(this.download);
    };
    save("../größe/loss: 1", "csv", new Blob());
    expect(clicked).toEqual([".._größe_loss_1.csv"]);
    jest.advanceTimersByTime(10_000);
    expect(revokeObjectURL).not.toHaveBeenCalled();
    jest.runAllTimers();
    expect(revokeObjectURL).toHaveBeenCalledWith("blob:1");
    jest.useRealTimers();
  });
});
