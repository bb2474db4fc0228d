/** The content of the panel, which is five tabs and messages about problems. */

import type { TranslationBundle } from "@jupyterlab/translation";
import { useCallback, useEffect, useId, useState, type KeyboardEvent, type JSX } from "react";

import type { NavigationRequest } from "../state/model";
import type { ConnectionFailure } from "../state/reducer";
import { LIST, type KnownSnapshots, type Place } from "../state/snapshots";
import { Clusters } from "./clusters/clusters";
import { usePanelContext, usePanelState, useSubscription } from "./context";
import type { Drafts } from "./endpointRequest";
import { Endpoints } from "./endpoints";
import { Gpus } from "./gpus";
import { useSessionState } from "../hooks";
import { Note } from "./parts";
import { Runs } from "./runs/runs";
import { Snapshots } from "./snapshots/snapshots";

const TABS = ["clusters", "runs", "endpoints", "gpus", "snapshots"] as const;
type Tab = (typeof TABS)[number];
const TAB_OF: Record<NavigationRequest["show"], Tab> = { run: "runs", start: "clusters", versions: "snapshots" };

export function Panel(): JSX.Element {
  const { model } = usePanelContext();
  const [stored, setTab] = useSessionState("tab", "clusters");
  const tab = TABS.find((name) => name === stored) ?? "clusters";
  const [run, setRun] = useSessionState("run", "");
  // A run takes the focus when the user opens it, but not when the panel shows it again after a reload.
  const [opened, setOpened] = useState(false);
  const [starting, setStarting] = useState(false);
  const [drafts] = useState<Drafts>(() => new Map());
  const [known] = useState<KnownSnapshots>(() => ({ page: null, changes: new Map() }));
  const [place, setPlace] = useState<Place>(LIST);
  const id = useId();
  useSubscription({ seen: true });
  const open = useCallback(
    (wanted: string) => {
      setOpened(true);
      setRun(wanted);
    },
    [setRun],
  );
  useEffect(() => {
    const follow = (_: unknown, request: NavigationRequest) => {
      setTab(TAB_OF[request.show]);
      if (request.show === "run") open(request.run);
      if (request.show === "start") setStarting(true);
      if (request.show === "versions") setPlace({ show: "versions", of: { file: request.file ?? "" }, back: LIST });
    };
    model.navigation.connect(follow);
    return () => void model.navigation.disconnect(follow);
  }, [model, open, setTab]);
  return (
    <>
      <Tabs id={id} tab={tab} setTab={setTab} />
      <Problems />
      <div className="fd-tabpanel" role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${tab}`} tabIndex={-1}>
        {tab === "clusters" && <Clusters starting={starting} setStarting={setStarting} />}
        {tab === "runs" && <Runs id={run} focus={opened} open={open} />}
        {tab === "endpoints" && <Endpoints drafts={drafts} />}
        {tab === "gpus" && <Gpus />}
        {tab === "snapshots" && <Snapshots known={known} place={place} setPlace={setPlace} />}
      </div>
    </>
  );
}

function Tabs({ id, tab, setTab }: { id: string; tab: Tab; setTab: (tab: Tab) => void }): JSX.Element {
  const { trans } = usePanelContext();
  const words: Record<Tab, string> = {
    clusters: trans.__("Clusters"),
    runs: trans.__("Runs"),
    endpoints: trans.__("Endpoints"),
    gpus: trans.__("GPUs"),
    snapshots: trans.__("Snapshots"),
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = step && TABS[(TABS.indexOf(tab) + step + TABS.length) % TABS.length];
    if (!next) return;
    event.preventDefault();
    setTab(next);
    document.getElementById(`${id}-${next}`)?.focus();
  };
  return (
    <div className="fd-tabs" role="tablist" aria-label="Farandole" onKeyDown={onKeyDown}>
      {TABS.map((name) => (
        <button
          key={name}
          type="button"
          role="tab"
          id={`${id}-${name}`}
          aria-selected={name === tab}
          aria-controls={`${id}-panel`}
          tabIndex={name === tab ? 0 : -1}
          onClick={() => setTab(name)}
        >
          {words[name]}
        </button>
      ))}
    </div>
  );
}

/** Return a message that says why the page has no connection to the server, and what the user can do about it. */
function failureText(trans: TranslationBundle, failure: ConnectionFailure | null): string {
  if (failure?.status === 403) return trans.__("You are no longer logged in. Log in, then reload the page.");
  if (failure?.status === 404) {
    return trans.__("The notebook server has no Farandole. Install the package there, then restart the server.");
  }
  const text = trans.__("The notebook server does not answer. The page tries again.");
  // With status 0 the message is the browser's own, such as "Failed to fetch".
  return failure?.status ? `${text} ${failure.message}` : text;
}

/** Messages about a lost connection, an error of the hub, a home that is full, and requests that were refused. */
export function Problems(): JSX.Element {
  const { model, trans } = usePanelContext();
  const { connection, failure, hub, problems, resources } = usePanelState();
  return (
    <div className="fd-notes">
      {connection === "lost" && <Note error>{failureText(trans, failure)}</Note>}
      {connection === "open" && hub?.error && <Note error>{hub.error}</Note>}
      {resources?.home?.warning && <Note>{resources.home.warning}</Note>}
      {problems.map(({ message }) => (
        <Note key={message} error>
          {message}{" "}
          <button type="button" className="fd-small" onClick={() => model.dismiss(message)}>
            {trans.__("Dismiss")}
          </button>
        </Note>
      ))}
    </div>
  );
}
