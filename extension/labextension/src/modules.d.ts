declare module "*/static/chart.js" {
  type Series = import("./wire").Series;
  type RankLine = import("./wire").RankLine;

  /** A line of several in one chart: of one run among those that are compared. */
  export interface Line extends RankLine {
    label: string;
  }

  export class Chart {
    constructor(name: string, toggleLog: () => void, say?: (text: string) => string);
    readonly root: HTMLElement;
    update(series: Series & { lines?: Line[] }, log: boolean): void;
    resize(): void;
  }

  export function number(value: number | null | undefined): string;
}
