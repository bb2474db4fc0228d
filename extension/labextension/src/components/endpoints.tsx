/** The tab "Endpoints" of the panel. It shows the user's endpoints, and sends requests to them. */

import { useState, type JSX } from "react";

import { basename, number, roundedNumber, stepTime } from "../format";
import { isHubAway, isKnown } from "../state/reducer";
import type { Endpoint } from "../wire";
import { usePanelContext, usePanelState } from "./context";
import { RequestForm, type Drafts } from "./endpointRequest";
import { Stream } from "./endpointStream";
import { Empty, Meter, Note, Status } from "./parts";

export function Endpoints({ drafts }: { drafts: Drafts }): JSX.Element {
  const { trans } = usePanelContext();
  const { endpoints } = usePanelState();
  if (!endpoints) return <Empty title={trans.__("Loading…")} />;
  if (!endpoints.length) return <NoEndpoint />;
  return (
    <>
      {endpoints.map((endpoint) => (
        <EndpointCard key={endpoint.name} endpoint={endpoint} drafts={drafts} />
      ))}
    </>
  );
}

/** Says that there is no endpoint, unless the server or the hub is down, as there may be endpoints then. */
function NoEndpoint(): JSX.Element {
  const { trans } = usePanelContext();
  const state = usePanelState();
  if (isHubAway(state)) return <Empty title={trans.__("The endpoints are unknown until the hub answers")} />;
  if (!isKnown(state)) return <Empty title={trans.__("The endpoints are unknown until the server answers")} />;
  return (
    <Empty title={trans.__("No endpoint yet")}>
      <p>
        {state.hub
          ? trans.__(
              "An endpoint serves a model over HTTP. Save a model in a training cell with fd.save_model, then start its endpoint with %serve NAME.",
            )
          : trans.__("There is no hub. Endpoints are servers of a hub, so none can start here.")}
      </p>
    </Empty>
  );
}

function EndpointCard({ endpoint, drafts }: { endpoint: Endpoint; drafts: Drafts }): JSX.Element {
  const { trans } = usePanelContext();
  const { name, state, model, command, stream } = endpoint;
  const [trying, setTrying] = useState(drafts.has(name));
  const { stopping, stop } = useStop(endpoint);
  const shown = stopping ? "stopping" : state;
  const isReady = shown === "ready";
  const callable = isReady && model !== null;
  const toggleForm = () => {
    drafts.delete(name);
    setTrying(!trying);
  };
  return (
    <section className="fd-endpoint" aria-label={trans.__("Endpoint %1", name)}>
      <div className="fd-row">
        <h3 className="fd-title">{name}</h3>
        <Status of={shown} />
      </div>
      <div className="fd-facts">
        <Served endpoint={endpoint} />
      </div>
      <Address endpoint={endpoint} />
      {isReady && stream && <Stream name={name} stream={stream} />}
      {isReady && command === null && <Figures endpoint={endpoint} />}
      <div className="fd-row">
        {callable && (
          <button
            type="button"
            aria-expanded={trying}
            aria-label={trans.__("Send a request to %1", name)}
            onClick={toggleForm}
          >
            {trans.__("Send a request")}
          </button>
        )}
        <button
          type="button"
          className="fd-stop"
          disabled={shown === "stopping"}
          aria-label={trans.__("Stop %1", name)}
          onClick={() => void stop()}
        >
          {trans.__("Stop")}
        </button>
      </div>
      {callable && trying && <RequestForm name={name} drafts={drafts} />}
    </section>
  );
}

/** The command, or the model with its version and its image. Only the image is known until its endpoint answers. */
function Served({ endpoint: { model, version, command, image } }: { endpoint: Endpoint }): JSX.Element {
  const { trans } = usePanelContext();
  if (model === null) return <>{command ?? image}</>;
  const served = version === null ? model : `${model}:${version}`;
  return <>{image === null ? served : trans.__("%1 from %2", served, image)}</>;
}

/** Return whether the endpoint is being stopped, and a function that asks the user and then stops it. */
function useStop({ name, command, image, stream }: Endpoint) {
  const { model, trans, confirm } = usePanelContext();
  const [stopping, setStopping] = useState(false);
  const consequences = [
    trans.__("Programs can no longer call it."),
    stream && trans.__("Its stream is no longer scored."),
    image !== null && trans.__("The image stays in the registry."),
    image === null && command === null && trans.__("The model stays in the model store."),
  ];
  const body = consequences.filter(Boolean).join(" ");
  const stop = async () => {
    if (!(await confirm(trans.__("Stop endpoint %1?", name), body, trans.__("Stop")))) return;
    setStopping(true);
    try {
      await model.attempt(() => model.api.stopEndpoint(name));
    } finally {
      setStopping(false);
    }
  };
  return { stopping, stop };
}

/** The address for requests to a model, which browsers cannot open, or a link to the server that a command has started. */
function Address({ endpoint: { url, model, command } }: { endpoint: Endpoint }): JSX.Element {
  // A hub that does not know its public address gives only the path.
  const { href } = new URL(url, window.location.href);
  if (command === null) {
    const path = model === null ? "" : `v2/models/${basename(model)}/infer`;
    return <code className="fd-endpoint-url">{href + path}</code>;
  }
  return (
    <a className="fd-endpoint-url" href={href} target="_blank" rel="noopener noreferrer">
      {href}
    </a>
  );
}

function Figures({ endpoint }: { endpoint: Endpoint }): JSX.Element {
  const { trans } = usePanelContext();
  const { name, model, requests_per_second: rate, errors, p95_ms: latency } = endpoint;
  if (rate === null) {
    return (
      <Note>
        {model === null
          ? trans.__("The endpoint does not answer, so its model and its requests are unknown.")
          : trans.__("The endpoint does not answer, so its version and its requests are unknown.")}
      </Note>
    );
  }
  const facts = [
    [trans.__("Requests/s"), roundedNumber(rate)],
    [trans.__("Latency (p95)"), stepTime(latency === null ? null : latency / 1000)],
    [trans.__("Errors"), number(errors)],
  ] as const;
  return (
    <div className="fd-endpoint-part" role="group" aria-label={trans.__("Requests to %1 in the last minute", name)}>
      <p className="fd-muted">{trans.__("Requests in the last minute")}</p>
      <div className="fd-usage">
        {facts.map(([label, text]) => (
          <Meter key={label} label={label} text={text} value={null} total={null} />
        ))}
      </div>
    </div>
  );
}
