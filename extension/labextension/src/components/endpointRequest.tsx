/** The form that sends a request to an endpoint and shows the answer. */

import { useEffect, useId, useState, type FormEvent, type JSX } from "react";

import { stepTime } from "../format";
import { outcomeOf } from "../net/requestError";
import type { EndpointAnswer, EndpointRequest } from "../wire";
import { usePanelContext } from "./context";
import { Note } from "./parts";

/** The requests that the user has written and not closed, by the name of the endpoint. */
export type Drafts = Map<string, EndpointRequest>;

/** Return the request in the form and a function that changes it. Without a draft, it is the model's example. */
function useRequest(name: string, drafts: Drafts, onFailure: (error: Error) => void) {
  const { model } = usePanelContext();
  const [request, setRequest] = useState<EndpointRequest | null>(drafts.get(name) ?? null);
  const isMissing = request === null;
  useEffect(() => {
    if (!isMissing) return undefined;
    let current = true;
    void outcomeOf(model.api.endpointExample(name)).then((found) => {
      if (!current) return;
      if (found instanceof Error) onFailure(found);
      // Without an example, the user can still write a request.
      setRequest(found instanceof Error ? { request: "" } : found);
    });
    return () => {
      current = false;
    };
  }, [model, name, isMissing, onFailure]);
  const setText = (text: string) => {
    drafts.set(name, { request: text });
    setRequest({ request: text });
  };
  return { request, setText };
}

/** A form that sends a request to an endpoint. It begins with the draft, or with the example of the model. */
export function RequestForm({ name, drafts }: { name: string; drafts: Drafts }): JSX.Element {
  const { model, trans } = usePanelContext();
  const [outcome, setOutcome] = useState<EndpointAnswer | Error | null>(null);
  const { request, setText } = useRequest(name, drafts, setOutcome);
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
  const answer = outcome instanceof Error ? null : outcome;
  return (
    <form className="fd-form" aria-label={trans.__("Request to %1", name)} onSubmit={(event) => void submit(event)}>
      <RequestField request={request} set={setText} />
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
      {outcome instanceof Error && <Note error>{outcome.message}</Note>}
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
    return <Note info>{trans.__("The model's example is too large to be shown here. It is sent in full.")}</Note>;
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
