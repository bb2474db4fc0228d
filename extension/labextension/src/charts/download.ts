/** Makes the files of a chart that the user downloads: a picture as PNG or SVG, and the drawn values as CSV. */

import { HEIGHT, MARGIN, type Plot } from "./plot";
import { NAMED } from "./reading";

const SVG = "http://www.w3.org/2000/svg";
/** The height of the title and of each line of the legend in a picture, in pixels. */
const ROW = 18;
/** How many pixels of a PNG picture are one pixel of the page. */
const SCALE = 2;
/** How long a file is kept for its download. Some browsers read it late, for example after asking for a folder. */
const KEPT_MS = 60_000;
const STYLES = "fill stroke stroke-width stroke-dasharray stroke-linejoin opacity font-size font-family".split(" ");

/** Return the visible points as CSV. Smoothed values and the bounds of the band are only there if they are drawn. */
export function csvOf(plot: Plot): string {
  const { series, lines, spread } = plot;
  const isSmoothed = lines.some((line) => line.shown !== line.mean);
  const more = [...(isSmoothed ? ["smoothed"] : []), ...(spread ? ["low", "high"] : [])];
  const head = ["line", series.x_label, "value", ...more];
  const rows = lines.flatMap(({ label, x, mean, shown }) =>
    x.flatMap((at, n) => {
      if (!plot.isVisible(at)) return [];
      const bounds = spread ? [series.low[n], series.high[n]] : [];
      return [[label, at, mean[n], ...(isSmoothed ? [shown[n]] : []), ...bounds]];
    }),
  );
  return [head, ...rows].map((row) => `${row.map(cell).join(",")}\n`).join("");
}

function cell(value: string | number | null | undefined): string {
  const text = String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Return a chart as the text of an SVG file that needs no style sheet, with title, legend and the theme's colours. */
export function svgOf(svg: SVGSVGElement, plot: Plot): string {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  inlineStyles(svg, copy);
  const { color, fontFamily } = getComputedStyle(svg);
  const { width, height } = sizeOf(plot);
  const text = { fill: color, "font-family": fontFamily, "font-size": "12px" };
  copy.prepend(element("rect", { y: -ROW, width, height, fill: background(svg) }));
  copy.append(element("text", { ...text, x: MARGIN.left, y: -4, "font-weight": "bold" }, plot.series.name));
  const strokes = [...svg.querySelectorAll("path.fd-mean")].map((path) => getComputedStyle(path).stroke);
  plot.lines.slice(0, NAMED).forEach(({ label }, n) => {
    const y = HEIGHT + n * ROW + 12;
    copy.append(element("rect", { x: MARGIN.left, y: y - 6, width: 14, height: 3, fill: strokes[n] ?? "" }));
    copy.append(element("text", { ...text, x: MARGIN.left + 20, y }, label));
  });
  Object.entries({ viewBox: `0 ${-ROW} ${width} ${height}`, width, height }).forEach(([name, value]) =>
    copy.setAttribute(name, String(value)),
  );
  // A name may contain characters that XML does not allow.
  return new XMLSerializer().serializeToString(copy).replace(/[\p{Cc}\p{Cs}]/gu, "\ufffd");
}

/** Return a chart as a PNG picture. Throws an error if the browser cannot draw it, e.g. because it is too large. */
export async function pngOf(svg: SVGSVGElement, plot: Plot): Promise<Blob> {
  const { width, height } = sizeOf(plot);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgOf(svg, plot))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: width * SCALE, height: height * SCALE });
  const context = canvas.getContext("2d");
  context?.drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = context && (await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve)));
  if (!blob) throw new Error("the browser cannot draw this picture");
  return blob;
}

/** Make the browser download a file with the name of a series. */
export function save(name: string, format: string, blob: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${name.replace(/[^\p{L}\p{N}_.-]+/gu, "_").slice(0, 100)}.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEPT_MS);
}

function sizeOf({ width, lines }: Plot): { width: number; height: number } {
  return { width, height: HEIGHT + ROW * (1 + Math.min(NAMED, lines.length)) };
}

function background(svg: SVGSVGElement): string {
  return getComputedStyle(svg).getPropertyValue("--fd-paper") || "white";
}

function inlineStyles(from: Element, to: Element): void {
  const style = getComputedStyle(from);
  STYLES.forEach((name) => to.setAttribute(name, style.getPropertyValue(name)));
  to.removeAttribute("style");
  [...from.children].forEach((child, n) => {
    const copy = to.children[n];
    if (copy) inlineStyles(child, copy);
  });
}

function element(name: string, attributes: Record<string, string | number>, text = ""): SVGElement {
  const made = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, String(value)));
  made.textContent = text;
  return made;
}
