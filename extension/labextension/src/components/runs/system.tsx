/** The resource usage of a run's ranks over time. It is loaded while the user shows it. */

import { useEffect, useMemo, useState, type JSX } from "react";

import { Charts } from "../../charts/charts";
import { bytes, percent, rate } from "../../format";
import type { Translator } from "../../i18n";
import type { RunUsage } from "../../wire";
import { usePanelContext } from "../context";
import { Note } from "../parts";

const REFRESH_MILLISECONDS = 10_000;

interface Props {
  id: string;
  /** Whether ranks execute the run, so that its usage changes. */
  goesOn: boolean;
}

export function System(props: Props): JSX.Element {
  const { trans } = usePanelContext();
  const [open, setOpen] = useState(false);
  return (
    <details className="fd-system" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{trans.__("System")}</summary>
      {open && <Usage {...props} />}
    </details>
  );
}

function Usage({ id, goesOn }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const [byRank, setByRank] = useState(false);
  const usage = useUsage(id, byRank, goesOn);
  const series = useMemo(() => charted(usage?.series ?? [], trans), [usage, trans]);
  if (!usage) return <p className="fd-muted">{trans.__("Loading…")}</p>;
  return (
    <>
      {usage.notices.map((notice) => (
        <Note key={notice}>{notice}</Note>
      ))}
      <div className="fd-tools">
        <span className="fd-muted">{series.length === 0 && trans.__("No usage was recorded for this run.")}</span>
        <button type="button" className="fd-small" aria-pressed={byRank} onClick={() => setByRank(!byRank)}>
          {trans.__("usage of each rank")}
        </button>
      </div>
      <Charts series={series} />
    </>
  );
}

/** Return the usage of a run, or null until it is loaded. */
function useUsage(id: string, byRank: boolean, goesOn: boolean): RunUsage | null {
  const { model } = usePanelContext();
  const [usage, setUsage] = useState<RunUsage | null>(null);
  useEffect(() => {
    let mounted = true;
    const load = async () => {
      const found = await model.attempt(() => model.api.usage(id, byRank));
      if (mounted && found) setUsage(found);
    };
    void load();
    const timer = goesOn ? setInterval(() => void load(), REFRESH_MILLISECONDS) : undefined;
    return () => {
      mounted = false;
      clearInterval(timer);
    };
  }, [model, id, byRank, goesOn]);
  return usage;
}

/** Return the series of usage with titles, and with the formats of their units. */
function charted(series: RunUsage["series"], trans: Translator) {
  const kinds: Partial<Record<string, [string, (value: number | null) => string]>> = {
    cpu: [trans.__("CPU, of one core"), percent],
    memory: [trans.__("Memory"), bytes],
    gpu: [trans.__("GPU"), percent],
    gpu_memory: [trans.__("GPU memory"), bytes],
    received: [trans.__("Network, received"), rate],
    sent: [trans.__("Network, sent"), rate],
  };
  return series.map((one) => {
    const [name, format] = kinds[one.name] ?? [one.name];
    return { ...one, name, ...(format && { format }) };
  });
}
