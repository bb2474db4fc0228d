/** The tab "Endpoints" of the panel. It shows the user's endpoints, and sends requests to them. */

import { useEffect, useId, useState, type FormEvent, type JSX } from "react";

import { basename, number, stepTime } from "../format";
import { RequestError } from "../net/requestError";
import { isHubAway, isKnown } from "../state/reducer";
import type { Endpoint, EndpointAnswer, EndpointRequest } from "../wire";
import { usePanelContext, usePanelState } from "./context";
import { Empty, Meter, Note, Status } from "./parts";

export function Endpoints(): JSX.Element {
  const { trans } = usePanelContext();
  const { endpoints } = usePanelState();
  if (!endpoints) return <Empty title={trans.__("Loading…")} />;
  if (!endpoints.length) return <NoEndpoint />;
  return (
    <>
      {endpoints.map((endpoint) => (
        <EndpointCard key={endpoint.name} endpoint={endpoint} />
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

function EndpointCard({ endpoint }: { endpoint: Endpoint }): JSX.Element {
  const { trans } = usePanelContext();
  const { name, state, model, version, command } = endpoint;
  const [trying, setTrying] = useState(false);
  const { stopping, stop } = useStop(endpoint);
  const shown = stopping ? "stopping" : state;
  const callable = shown === "ready" && model !== null;
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
            onClick={() => setTrying(!trying)}
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
      {callable && trying && <RequestForm name={name} />}
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
    await model.attempt(() => model.api.stopEndpoint(name));
    setStopping(false);
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

/** Return the response to a request, or the error if the server refuses the request. The form itself shows the error. */
async function outcomeOf<T>(request: Promise<T>): Promise<T | RequestError> {
  try {
    return await request;
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    return error;
  }
}

/** Return the request in the form and a function that changes it. It is first the model's example, or null until then. */
function useExample(name: string, onFailure: (error: RequestError) => void) {
  const { model } = usePanelContext();
  const [request, setRequest] = useState<EndpointRequest | null>(null);
  useEffect(() => {
    let current = true;
    void outcomeOf(model.api.endpointExample(name)).then((found) => {
      if (!current) return;
      if (found instanceof RequestError) onFailure(found);
      // Without an example, the user can still write a request.
      setRequest(found instanceof RequestError ? { request: "" } : found);
    });
    return () => {
      current = false;
    };
  }, [model, name, onFailure]);
  return { request, setRequest };
}

/** A form that sends a request to an endpoint. It begins with the example that was saved with the model. */
function RequestForm({ name }: { name: string }): JSX.Element {
  const { model, trans } = usePanelContext();
  const [outcome, setOutcome] = useState<EndpointAnswer | RequestError | null>(null);
  const { request, setRequest } = useExample(name, setOutcome);
  const [busy, setBusy] = useState(false);
  const sendable = request !== null && (request.request === null || request.request.trim() !== "");
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (busy || !sendable) return;
    setBusy(true);
    setOutcome(null);
    setOutcome(await outcomeOf(model.api.callEndpoint(name, request)));
    setBusy(false);
  };
  const answer = outcome instanceof RequestError ? null : outcome;
  return (
    <form className="fd-form" aria-label={trans.__("Request to %1", name)} onSubmit={(event) => void submit(event)}>
      <RequestField request={request} set={(text) => setRequest({ request: text })} />
      <div className="fd-row">
        {/* A disabled button would lose the focus, so the button stays enabled during the request. */}
        <button type="submit" className="fd-main" disabled={!sendable} aria-disabled={busy}>
          {trans.__("Send")}
        </button>
        <span className="fd-muted" role="status">
          {busy && trans.__("Waiting for the answer…")}
          {answer && trans.__("Answered in %1", stepTime(answer.seconds))}
        </span>
      </div>
      {outcome instanceof RequestError && <Note error>{outcome.message}</Note>}
      {answer && <Answer name={name} answer={answer} />}
    </form>
  );
}

interface FieldProps {
  request: EndpointRequest | null;
  set: (text: string) => void;
}

function RequestField({ request, set }: FieldProps): JSX.Element {
  const { trans } = usePanelContext();
  const id = useId();
  if (request?.request === null) {
    return (
      <Note info>{trans.__("The model's example is too large to be shown here. It is sent as it was saved.")}</Note>
    );
  }
  return (
    <div className="fd-field">
      <label htmlFor={id}>{trans.__("Request (JSON)")}</label>
      <textarea
        id={id}
        rows={8}
        spellCheck={false}
        value={request?.request ?? ""}
        placeholder={request ? undefined : trans.__("Loading the example…")}
        disabled={!request}
        onChange={(event) => set(event.target.value)}
      />
    </div>
  );
}

function Answer({ name, answer: { answer, complete } }: { name: string; answer: EndpointAnswer }): JSX.Element {
  const { trans } = usePanelContext();
  return (
    <>
      <pre className="fd-endpoint-answer" tabIndex={0} role="group" aria-label={trans.__("Answer of %1", name)}>
        {answer}
      </pre>
      {!complete && <Note info>{trans.__("Only the beginning of the answer is shown.")}</Note>}
    </>
  );
}
