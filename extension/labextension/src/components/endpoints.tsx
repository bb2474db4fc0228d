/** The tab "Endpoints" of the panel. It shows the user's endpoints, and sends requests to them. */

import { useState, type JSX } from "react";

import { basename, number, stepTime } from "../format";
import { isHubAway, isKnown } from "../state/reducer";
import type { Endpoint } from "../wire";
import { usePanelContext, usePanelState } from "./context";
import { RequestForm, type Drafts } from "./endpointRequest";
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
  const { name, state, model, version, command } = endpoint;
  const [trying, setTrying] = useState(drafts.has(name));
  const { stopping, stop } = useStop(endpoint);
  const shown = stopping ? "stopping" : state;
  const callable = shown === "ready" && model !== null;
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
      <div className="fd-facts">{model === null ? command : version === null ? model : `${model}:${version}`}</div>
      <Address endpoint={endpoint} />
      {callable && <Figures endpoint={endpoint} />}
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

/** Return whether the endpoint is being stopped, and a function that asks the user and then stops it. */
function useStop({ name, model: served }: Endpoint) {
  const { model, trans, confirm } = usePanelContext();
  const [stopping, setStopping] = useState(false);
  const body =
    served === null
      ? trans.__("Programs can no longer call it.")
      : trans.__("Programs can no longer call it. The model stays in the model store.");
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
function Address({ endpoint: { url, model } }: { endpoint: Endpoint }): JSX.Element {
  // A hub that does not know its public address gives only the path.
  const { href } = new URL(url, window.location.href);
  if (model !== null) return <code className="fd-endpoint-url">{`${href}v2/models/${basename(model)}/infer`}</code>;
  return (
    <a className="fd-endpoint-url" href={href} target="_blank" rel="noopener noreferrer">
      {href}
    </a>
  );
}

function Figures({ endpoint }: { endpoint: Endpoint }): JSX.Element {
  const { trans } = usePanelContext();
  const { name, requests_per_second: rate, errors, p95_ms: latency } = endpoint;
  if (rate === null) {
    return <Note>{trans.__("The endpoint does not answer, so its version and its requests are unknown.")}</Note>;
  }
  const facts = [
    [trans.__("Requests/s"), number(Number(rate.toPrecision(3)))],
    [trans.__("Latency (p95)"), stepTime(latency === null ? null : latency / 1000)],
    [trans.__("Errors"), number(errors)],
  ] as const;
  return (
    <div role="group" aria-label={trans.__("Requests to %1 in the last minute", name)}>
      <p className="fd-muted">{trans.__("In the last minute")}</p>
      <div className="fd-usage">
        {facts.map(([label, text]) => (
          <Meter key={label} label={label} text={text} value={null} total={null} />
        ))}
      </div>
    </div>
  );
}
