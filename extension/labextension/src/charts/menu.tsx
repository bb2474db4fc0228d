/** The menu with the formats in which a chart can be downloaded. */

import { useRef, type FocusEvent, type JSX, type RefObject } from "react";

import { useTranslator } from "../i18n";
import { csvOf, pngOf, save, svgOf } from "./download";
import type { Plot } from "./plot";

interface Props {
  svg: RefObject<SVGSVGElement>;
  plot: Plot;
}

export function DownloadMenu({ svg, plot }: Props): JSX.Element {
  const trans = useTranslator();
  const menu = useRef<HTMLDetailsElement>(null);
  const { name } = plot.series;
  const formats: Record<string, (element: SVGSVGElement) => Blob | Promise<Blob>> = {
    png: (element) => pngOf(element, plot),
    svg: (element) => new Blob([svgOf(element, plot)], { type: "image/svg+xml" }),
    csv: () => new Blob([csvOf(plot)], { type: "text/csv" }),
  };
  const close = () => menu.current?.removeAttribute("open");
  const download = async (format: string) => {
    close();
    const blob = svg.current && (await formats[format]?.(svg.current));
    if (blob) save(name, format, blob);
  };
  const onBlur = (event: FocusEvent) => {
    if (!event.currentTarget.contains(event.relatedTarget)) close();
  };
  return (
    <details ref={menu} className="fd-menu" onBlur={onBlur}>
      <summary aria-label={trans.__("Download the chart of %1", name)} title={trans.__("Download the chart")}>
        ⤓
      </summary>
      <div>
        {Object.keys(formats).map((format) => (
          <button key={format} type="button" onClick={() => void download(format)}>
            {format.toUpperCase()}
          </button>
        ))}
      </div>
    </details>
  );
}
