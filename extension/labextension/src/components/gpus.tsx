/** The tab "GPUs" of the panel. It shows the user's quota and home, the GPUs of the hub, and which users hold them. */

import type { JSX } from "react";

import { bytes, bytesOf } from "../format";
import { isHubAway, isKnown } from "../state/reducer";
import type { GpuClass, Home } from "../wire";
import { usePanelContext, usePanelState } from "./context";
import { Empty, Meter, Table } from "./parts";

export function Gpus(): JSX.Element {
  const { trans } = usePanelContext();
  const { resources } = usePanelState();
  if (!resources) return <Empty title={trans.__("Loading…")} />;
  const { quota, gpus, home } = resources;
  const most = quota.workers_max;
  const each = quota.ranks_per_worker_max;
  return (
    <>
      <section aria-label={trans.__("Your quota")}>
        <h3 className="fd-title">{trans.__("Your quota")}</h3>
        <Meter
          label={trans.__("Workers")}
          text={most === null ? String(quota.workers) : trans.__("%1 of %2", quota.workers, most)}
          value={quota.workers}
          total={most}
        />
        {each !== null && (
          <p className="fd-muted">
            {trans._n("At most %1 rank on each worker.", "At most %1 ranks on each worker.", each)}
          </p>
        )}
        {home && <HomeView home={home} />}
      </section>
      <section aria-label={trans.__("GPUs")}>
        <h3 className="fd-title">{trans.__("GPUs")}</h3>
        {gpus.length ? gpus.map((one) => <ClassView key={one.name} gpus={one} />) : <NoGpus />}
      </section>
    </>
  );
}

function HomeView({ home }: { home: Home }): JSX.Element {
  const { trans } = usePanelContext();
  const { used, limit, free, warning } = home;
  const text = trans.__("%1 · %2 free", used === null ? bytes(limit) : bytesOf(used, limit), bytes(free));
  return <Meter label={trans.__("Home")} text={text} value={used} total={limit} warn={warning !== null} />;
}

/** Says that there are no GPUs, unless the server or the hub is down, as there may be GPUs then. */
function NoGpus(): JSX.Element {
  const { trans } = usePanelContext();
  const state = usePanelState();
  if (isHubAway(state)) return <Empty title={trans.__("The GPUs are unknown until the hub answers")} />;
  if (!isKnown(state)) return <Empty title={trans.__("The GPUs are unknown until the server answers")} />;
  return (
    <Empty title={trans.__("No GPUs here")}>
      <p>{trans.__("The hub offers no GPUs. Profiles without GPUs train on CPUs.")}</p>
    </Empty>
  );
}

function ClassView({ gpus }: { gpus: GpuClass }): JSX.Element {
  const { trans } = usePanelContext();
  const { name, total, free, waiting, held } = gpus;
  const queue = waiting ? ` · ${trans._n("%1 server waits", "%1 servers wait", waiting)}` : "";
  return (
    <div className="fd-class">
      <Meter label={name} text={trans.__("%1 of %2 free", free, total) + queue} value={total - free} total={total} />
      {held.length > 0 && (
        <Table
          label={trans.__("Holders of GPUs of class %1", name)}
          scroller={trans.__("Table of class %1", name)}
          heads={[trans.__("held by"), trans.__("GPUs")]}
        >
          {held.map(({ user, count }) => (
            <tr key={user}>
              <th scope="row">{user}</th>
              <td>{count}</td>
            </tr>
          ))}
        </Table>
      )}
    </div>
  );
}
