/** Shows the progress of Dask's tasks on a cluster, and the tasks and the results of Dask on a worker. */

import { sum } from "d3-array";
import type { JSX } from "react";

import { bytes, bytesOf, number } from "../../format";
import type { Translator } from "../../i18n";
import type { Cluster, DaskProgress, DaskWorker, Worker } from "../../wire";
import { usePanelContext } from "../context";
import { Meter, Note, Progress } from "../parts";

/** The progress of Dask's tasks, with a bar until all of them have ended. */
export function DaskLine({ cluster, dask }: { cluster: Cluster; dask: DaskProgress }): JSX.Element {
  const { trans } = usePanelContext();
  const { tasks, done, failed } = dask;
  const going = done + failed < tasks;
  const facts = [
    going ? trans.__("%1 of %2 tasks", number(done), number(tasks)) : ended(trans, dask),
    going && activity(trans, cluster.workers),
    failed > 0 && trans.__("%1 failed", number(failed)),
  ];
  const [label, text] = [trans.__("Dask"), facts.filter(Boolean).join(", ")];
  if (going) return <Progress label={label} text={text} value={(100 * (done + failed)) / tasks} />;
  return (
    <div className="fd-bar-text">
      <span>{label}</span>
      <span className="fd-muted">{text}</span>
    </div>
  );
}

function ended(trans: Translator, { tasks, done }: DaskProgress): string {
  return tasks === 0 ? trans.__("no tasks yet") : trans._n("%2 task done", "%2 tasks done", done, number(done));
}

function activity(trans: Translator, workers: Worker[]): string {
  if (workers.some(({ dask }) => dask?.paused === "training")) return trans.__("waiting for a training cell");
  return trans.__("%1 running", number(sum(workers, ({ dask }) => dask?.running)));
}

/** The tasks and the results of Dask on the ranks of a worker. */
export function DaskView({ name, dask }: { name: string; dask: DaskWorker }): JSX.Element {
  const { trans } = usePanelContext();
  const { running, waiting, done, memory, memory_limit: limit, spilled, paused } = dask;
  const tasks = trans.__("%1 running, %2 waiting, %3 done", number(running), number(waiting), number(done));
  return (
    <div className="fd-dask" role="group" aria-label={trans.__("Dask on %1", name)}>
      <div className="fd-usage">
        <Meter label={trans.__("Dask tasks")} text={tasks} value={null} total={null} />
        <Meter label={trans.__("Dask results")} text={bytesOf(memory, limit)} value={memory} total={limit} />
        {spilled > 0 && <Meter label={trans.__("On disk")} text={bytes(spilled)} value={null} total={null} />}
      </div>
      {paused === "memory" && (
        <Note>{trans.__("Dask begins no further task here, because little memory is left.")}</Note>
      )}
      {paused === "training" && <Note info>{trans.__("Dask's tasks wait until the training cell ends.")}</Note>}
    </div>
  );
}
