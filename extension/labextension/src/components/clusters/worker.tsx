/** Shows a worker with its ranks, its resource usage and its log. */

import { useState, type JSX } from "react";

import { bytesOf, clock, percent, rate } from "../../format";
import type { GpuUsage, Usage, Worker } from "../../wire";
import { usePanelContext } from "../context";
import { LogView } from "../log";
import { Meter, Note, Progress, Status, Toggle } from "../parts";
import { DaskView } from "./dask";

/** A worker. If `brief` is true, its resource usage and its log are hidden until the user expands the item. */
export function WorkerItem({ worker, brief }: { worker: Worker; brief: boolean }): JSX.Element {
  const { trans } = usePanelContext();
  const [more, setMore] = useState(false);
  const whole = more || !brief;
  return (
    <li className="fd-worker" aria-label={worker.name}>
      <div className="fd-row">
        <WorkerName worker={worker} />
        <Status of={worker.state} />
        <Ranks worker={worker} />
        {brief && (
          <Toggle open={more} setOpen={setMore} label={trans.__("More of %1", worker.name)}>
            {trans.__("More")}
          </Toggle>
        )}
      </div>
      {worker.state === "starting" && <Starting worker={worker} />}
      {whole && worker.usage && <UsageView usage={worker.usage} />}
      {whole && worker.dask && <DaskView name={worker.name} dask={worker.dask} />}
      {whole && <IdleAndLog worker={worker} />}
    </li>
  );
}

function IdleAndLog({ worker }: { worker: Worker }): JSX.Element {
  const { trans } = usePanelContext();
  const [log, setLog] = useState(false);
  return (
    <>
      <div className="fd-row">
        <Idle worker={worker} />
        {worker.url && (
          <Toggle open={log} setOpen={setLog} label={trans.__("Log of %1", worker.name)}>
            {trans.__("Log")}
          </Toggle>
        )}
      </div>
      {log && (
        <LogView of={{ run: null, rank: null, worker: worker.name }} label={trans.__("Log of %1", worker.name)} />
      )}
    </>
  );
}

function WorkerName({ worker }: { worker: Worker }): JSX.Element {
  const { trans } = usePanelContext();
  return <strong title={worker.host ? trans.__("on %1", worker.host) : undefined}>{worker.name}</strong>;
}

function Ranks({ worker }: { worker: Worker }): JSX.Element | null {
  const { trans } = usePanelContext();
  if (!worker.ranks.length) {
    return worker.slots === null ? null : (
      <span className="fd-muted">{trans._n("%1 rank", "%1 ranks", worker.slots)}</span>
    );
  }
  return (
    <span className="fd-ranks">
      {worker.ranks.map(({ rank, alive }) => (
        <span key={rank} className="fd-rank" data-dead={alive ? undefined : ""}>
          {alive ? trans.__("rank %1", rank) : trans.__("rank %1 is dead", rank)}
        </span>
      ))}
    </span>
  );
}

function Starting({ worker }: { worker: Worker }): JSX.Element {
  const { trans } = usePanelContext();
  const place = worker.queue ? trans.__("place %1 in the queue", worker.queue) : percent(worker.percent);
  return (
    <>
      <Progress label={trans.__("Start of %1", worker.name)} text={place} value={worker.percent} />
      {worker.message && <Note info>{worker.message}</Note>}
    </>
  );
}

function UsageView({ usage }: { usage: Usage }): JSX.Element {
  const { trans } = usePanelContext();
  const { cpu, cpus } = usage;
  const cores = trans._n("%1 core", "%1 cores", cpus);
  return (
    <div className="fd-usage">
      <Meter label={trans.__("CPU")} text={`${percent(cpu)} · ${cores}`} value={cpu} total={cpus * 100} />
      <MemoryMeter label={trans.__("Memory")} used={usage.memory} total={usage.memory_limit} />
      {usage.gpus.map((gpu) => (
        <GpuView key={gpu.index} gpu={gpu} />
      ))}
      <div className="fd-meter">
        <span className="fd-muted">{trans.__("Network")}</span>
        <span className="fd-meter-text" title={trans.__("received and sent")}>
          ↓ {rate(usage.received)} ↑ {rate(usage.sent)}
        </span>
      </div>
    </div>
  );
}

function GpuView({ gpu }: { gpu: GpuUsage }): JSX.Element {
  const { trans } = usePanelContext();
  return (
    <>
      <Meter label={trans.__("GPU %1", gpu.index)} text={percent(gpu.percent)} value={gpu.percent} total={100} />
      <MemoryMeter label={trans.__("GPU %1 memory", gpu.index)} used={gpu.memory} total={gpu.memory_total} />
    </>
  );
}

function MemoryMeter(props: { label: string; used: number | null; total: number | null }): JSX.Element {
  const { label, used, total } = props;
  return <Meter label={label} text={bytesOf(used, total)} value={used} total={total} />;
}

function Idle({ worker }: { worker: Worker }): JSX.Element {
  const { trans } = usePanelContext();
  const until = worker.idle_until && trans.__("idle, stops at %1", clock(worker.idle_until, new Date()));
  // A worker whose own ranks are all dead is still busy while its run is active on other workers, but computes nothing.
  const computing = worker.busy && (!worker.ranks.length || worker.ranks.some(({ alive }) => alive));
  return <span className="fd-muted fd-grow">{computing ? trans.__("computing") : (until ?? "")}</span>;
}
