/** The menu with the formats in which a chart can be downloaded. */

import { useRef, type FocusEvent, type JSX, type RefObject } from "react";

import { useTranslator } from "../i18n";
import { csvOf, pngOf, save, svgOf } from "./download";
import type { Plot } from "./plot";

interface Props {
  svg: RefObject<SVGSVGElement>;
  plot: Plot;
  /** Called with the reason why a download has failed, and with an empty text when the user chooses a format. */
  setProblem: (problem: string) => void;
}

export function DownloadMenu({ svg, plot, setProblem }: Props): JSX.Element {
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
    setProblem("");
    try {
      const blob = svg.current && (await formats[format]?.(svg.current));
      if (blob) save(name, format, blob);
    } catch (error) {
      setProblem(trans.__("This chart could not be downloaded as %1. %2", format.toUpperCase(), String(error)));
    }
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
