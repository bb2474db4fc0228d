/** The tab "Endpoints" of the panel. It shows the user's endpoints, and sends the example of their models. */

import { useEffect, useId, useState, type JSX } from "react";

import { isHubAway, isKnown } from "../state/reducer";
import type { Endpoint, EndpointAnswer } from "../wire";
import { usePanelContext, usePanelState } from "./context";
import { Empty, Status, Toggle } from "./parts";

export function Endpoints(): JSX.Element {
  const { trans } = usePanelContext();
  const state = usePanelState();
  const { endpoints } = state;
  if (isHubAway(state)) return <Empty title={trans.__("The endpoints are unknown until the hub answers")} />;
  if (!endpoints) return <Empty title={trans.__("Loading…")} />;
  if (endpoints.length) {
    return (
      <>
        {endpoints.map((one) => (
          <EndpointView key={one.name} endpoint={one} />
        ))}
      </>
    );
  }
  if (!isKnown(state)) return <Empty title={trans.__("The endpoints are unknown until the server answers")} />;
  return (
    <Empty title={trans.__("No endpoints")}>
      <p>{trans.__("Save a model in a training cell with fd.save_model, then serve it with %serve NAME.")}</p>
    </Empty>
  );
}

function EndpointView({ endpoint }: { endpoint: Endpoint }): JSX.Element {
  const { model, trans, confirm } = usePanelContext();
  const { name, url, ready } = endpoint;
  const [open, setOpen] = useState(false);
  const id = useId();
  const stop = async () => {
    const question = trans.__("Programs that call it get no more answers. Its model stays in the store.");
    if (await confirm(trans.__("Stop endpoint %1?", name), question, trans.__("Stop"))) {
      await model.attempt(() => model.api.stopEndpoint(name));
    }
  };
  return (
    <section className="fd-card" aria-labelledby={id}>
      <div className="fd-head">
        <h3 className="fd-title" id={id}>
          {name}
        </h3>
        <Status of={ready ? "ready" : "starting"} />
        <span className="fd-muted">{served(endpoint)}</span>
      </div>
      <a className="fd-endpoint-url" href={url} target="_blank" rel="noopener noreferrer">
        {url}
      </a>
      {endpoint.model !== null && <Figures endpoint={endpoint} />}
      <div className="fd-row">
        {ready && endpoint.model !== null && (
          <Toggle open={open} setOpen={setOpen} label={trans.__("Try endpoint %1", name)}>
            {trans.__("Try it")}
          </Toggle>
        )}
        <button
          type="button"
          className="fd-small"
          aria-label={trans.__("Stop endpoint %1", name)}
          onClick={() => void stop()}
        >
          {trans.__("Stop")}
        </button>
      </div>
      {open && <Trial key={endpoint.version} endpoint={endpoint} />}
    </section>
  );
}

/** Return what an endpoint serves: a version of a model, or a command. */
function served({ model, version, command }: Endpoint): string {
  return model === null ? (command ?? "") : `${model}:${version ?? "?"}`;
}

/** The figures of the last minute. */
function Figures({ endpoint }: { endpoint: Endpoint }): JSX.Element {
  const { trans } = usePanelContext();
  const { requests_per_second: rate, errors, p95_ms: latency } = endpoint;
  const facts: (readonly [string, string])[] = [
    [trans.__("requests/s"), rate === null ? "–" : rate.toFixed(1)],
    [trans.__("p95"), latency === null ? "–" : `${latency.toFixed(1)} ms`],
    [trans.__("errors"), errors === null ? "–" : String(errors)],
  ];
  return (
    <dl className="fd-endpoint-figures" aria-label={trans.__("The last minute of endpoint %1", endpoint.name)}>
      {facts.map(([label, text]) => (
        <div key={label}>
          <dt className="fd-muted">{label}</dt>
          <dd>{text}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A form that sends a request to an endpoint. It begins with the example that was saved with the model. */
function Trial({ endpoint }: { endpoint: Endpoint }): JSX.Element {
  const { model, trans } = usePanelContext();
  const [request, setRequest] = useState<string | null>(null);
  const [answer, setAnswer] = useState<EndpointAnswer | null>(null);
  const [busy, setBusy] = useState(false);
  const id = useId();
  const { name } = endpoint;
  useEffect(() => {
    let current = true;
    void model
      .attempt(() => model.api.endpointExample(name))
      .then((found) => {
        if (current && found) setRequest(found.request);
      });
    return () => {
      current = false;
    };
  }, [model, name]);
  const send = async () => {
    setBusy(true);
    const found = await model.attempt(() => model.api.callEndpoint(name, { request: request ?? "" }));
    setBusy(false);
    setAnswer(found ?? null);
  };
  return (
    <form
      className="fd-form"
      aria-label={trans.__("Request to endpoint %1", name)}
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <div className="fd-field">
        <label htmlFor={id}>{trans.__("Request")}</label>
        <textarea
          id={id}
          rows={8}
          spellCheck={false}
          value={request ?? ""}
          disabled={request === null}
          onChange={(event) => setRequest(event.target.value)}
        />
      </div>
      <div className="fd-row">
        <button type="submit" className="fd-main" disabled={busy || request === null}>
          {trans.__("Send")}
        </button>
      </div>
      {answer && (
        <output>
          <span className="fd-muted">{trans.__("answered in %1 ms", (1000 * answer.seconds).toFixed(0))}</span>
          <pre className="fd-endpoint-answer">{answer.answer}</pre>
        </output>
      )}
    </form>
  );
}
