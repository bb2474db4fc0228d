/** Shows the stream that an endpoint scores. */

import type { JSX } from "react";

import { number, roundedNumber } from "../format";
import type { EndpointStream } from "../wire";
import { usePanelContext } from "./context";
import { Meter, Note, Status } from "./parts";

export function Stream({ name, stream }: { name: string; stream: EndpointStream }): JSX.Element {
  const { trans } = usePanelContext();
  const { source, target, problem } = stream;
  return (
    <div className="fd-endpoint-part fd-stream" role="group" aria-label={trans.__("Stream of %1", name)}>
      <div className="fd-row">
        <h4>{trans.__("Stream")}</h4>
        {problem === null ? (
          <Status of="running" label={trans.__("scoring")} />
        ) : (
          <Status of="interrupted" label={trans.__("not scoring")} />
        )}
      </div>
      {problem !== null && <Note>{problem}</Note>}
      <dl className="fd-stream-ends">
        <dt>{trans.__("From")}</dt>
        <dd>
          <code>{source}</code>
        </dd>
        <dt>{trans.__("To")}</dt>
        <dd>
          <code>{target}</code>
        </dd>
      </dl>
      <Figures stream={stream} />
    </div>
  );
}

function Figures({ stream }: { stream: EndpointStream }): JSX.Element {
  const { trans } = usePanelContext();
  const { lag, records_per_second: rate, dead_letters: dead } = stream;
  const waiting = lag === null ? trans.__("unknown") : trans._n("%2 record", "%2 records", lag, number(lag));
  return (
    <div className="fd-usage">
      <Meter label={trans.__("Lag")} text={waiting} value={null} total={null} />
      <Meter label={trans.__("Records/s")} text={roundedNumber(rate)} value={null} total={null} />
      <Meter label={trans.__("Dead letters")} text={number(dead)} value={null} total={null} warn={dead > 0} />
    </div>
  );
}
