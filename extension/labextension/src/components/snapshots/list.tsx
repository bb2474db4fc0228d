/** The list of snapshots by day, and the form that takes one. */

import { useEffect, useId, useState, type FormEvent, type JSX, type MouseEvent } from "react";

import { bytes, timeOfDay } from "../../format";
import { RequestError } from "../../net/requestError";
import { byDay, dayText, type Day, type KnownSnapshots } from "../../state/snapshots";
import type { Snapshot, SnapshotChanges, SnapshotJob, SnapshotPage } from "../../wire";
import { usePanelContext } from "../context";
import { Empty, Note } from "../parts";
import { useChanges, useSnapshots } from "./useSnapshots";

const MOST_CHARACTERS = 200;
/** The number of snapshots that the server lists. */
const MOST_SHOWN = 1000;

interface Props {
  known: KnownSnapshots;
  /** The snapshot whose files the user has just left. Its row takes the focus. */
  previous: string;
  open: (id: string) => void;
}

export function SnapshotList({ known, previous, open }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const { page, failure, loading, load, loadOlder } = useSnapshots(known);
  if (failure instanceof RequestError && failure.problem.code === "unknown") {
    // The hub has no snapshots.
    return <Empty title={failure.message} />;
  }
  if (!page) {
    return failure ? <Failure failure={failure} retry={() => void load()} /> : <Empty title={trans.__("Loading…")} />;
  }
  return (
    <>
      <TakeForm taking={page.taking} taken={load} />
      {page.problem !== null && <Note>{trans.__("The last automatic snapshot was not taken: %1", page.problem)}</Note>}
      {failure && <Failure failure={failure} retry={() => void load()} />}
      {page.total === 0 ? (
        <Empty title={trans.__("No snapshot yet")}>
          <p>{trans.__("A snapshot is a copy of your home at one moment, from which you can restore files.")}</p>
        </Empty>
      ) : (
        <Days snapshots={page.snapshots} {...{ known, previous, open }} />
      )}
      <div className="fd-row">
        <Older page={page} loading={loading} loadOlder={loadOlder} />
        <button type="button" className="fd-small" aria-disabled={loading} onClick={() => !loading && void load()}>
          {loading ? trans.__("Loading…") : trans.__("Refresh")}
        </button>
      </div>
    </>
  );
}

interface OlderProps {
  page: SnapshotPage;
  loading: boolean;
  loadOlder: () => void;
}

/** A button that shows more snapshots, or the number of those that the server does not list. */
function Older({ page: { snapshots, total }, loading, loadOlder }: OlderProps): JSX.Element | null {
  const { trans } = usePanelContext();
  const more = total - snapshots.length;
  if (more <= 0) return null;
  if (snapshots.length >= MOST_SHOWN) {
    return <p className="fd-muted">{trans.__("%1 older snapshots are not shown.", more)}</p>;
  }
  return (
    <button type="button" aria-disabled={loading} onClick={() => !loading && loadOlder()}>
      {trans.__("Show older snapshots (%1)", more)}
    </button>
  );
}

/** Why something of the snapshots cannot be shown, and a button that tries again. */
export function Failure({ failure, retry }: { failure: Error; retry: () => void }): JSX.Element {
  const { trans } = usePanelContext();
  const onClick = ({ currentTarget }: MouseEvent) => {
    // The button disappears. Without this, the keyboard would be at the beginning of the page then.
    currentTarget.closest<HTMLElement>("[role=tabpanel]")?.focus();
    retry();
  };
  return (
    <Note error>
      {failure.message}{" "}
      <button type="button" className="fd-small" onClick={onClick}>
        {trans.__("Try again")}
      </button>
    </Note>
  );
}

interface TakeProps {
  /** The job that takes a snapshot for another page, or took one when the user left this tab. */
  taking: string | null;
  /** Called when a snapshot was taken, or could not be taken. */
  taken: () => Promise<void>;
}

function TakeForm({ taking, taken }: TakeProps): JSX.Element {
  const { model, trans } = usePanelContext();
  const [message, setMessage] = useState("");
  const [busy, setBusy] = useState(false);
  const [done, setDone] = useState<SnapshotJob | null>(null);
  const id = useId();
  /** Wait for a snapshot. The message of one that another page takes is not the one in this form. */
  const follow = async (request: () => Promise<SnapshotJob>, own: boolean) => {
    setBusy(true);
    setDone(null);
    const found = await model.attempt(request);
    setBusy(false);
    setDone(found);
    if (found && own) setMessage("");
    await taken();
  };
  useEffect(() => {
    if (taking !== null && !busy) void follow(() => model.api.snapshotJob(taking), false);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- only a job that begins or ends is followed
  }, [taking]);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!busy) void follow(() => model.api.takeSnapshot({ message }), true);
  };
  return (
    <form className="fd-form" aria-label={trans.__("Take a snapshot")} onSubmit={submit}>
      <div className="fd-field">
        <label htmlFor={id}>{trans.__("Message (optional)")}</label>
        <input
          id={id}
          type="text"
          maxLength={MOST_CHARACTERS}
          value={message}
          placeholder={trans.__("before cleaning")}
          onChange={(event) => setMessage(event.target.value)}
        />
      </div>
      <div className="fd-row">
        {/* A disabled button would lose the focus, so the button stays enabled meanwhile. */}
        <button type="submit" className="fd-main" aria-disabled={busy}>
          {trans.__("Take a snapshot")}
        </button>
        <span className="fd-muted" role="status">
          {busy && trans.__("Taking a snapshot. The first one reads all of your files.")}
          {done && trans.__("The snapshot is taken.")}
        </span>
      </div>
      {done?.notices.map((notice) => (
        <Note key={notice}>{notice}</Note>
      ))}
    </form>
  );
}

interface DaysProps extends Props {
  snapshots: readonly Snapshot[];
}

/** The snapshots by day. Those of the newest day are shown at first. */
function Days({ snapshots, known, previous, open }: DaysProps): JSX.Element {
  const { trans } = usePanelContext();
  const days = byDay(snapshots);
  const newest = days[0]?.date;
  const left = days.find((day) => day.snapshots.some(({ id }) => id === previous))?.date;
  const [toggled, setToggled] = useState<ReadonlySet<string>>(new Set(left && left !== newest ? [left] : []));
  const isOpen = (day: Day) => (day.date === newest) !== toggled.has(day.date);
  const [focused, setFocused] = useState(previous);
  const toggle = (day: string) => {
    // Rows that appear again do not take the focus.
    setFocused("");
    setToggled(new Set(toggled.has(day) ? [...toggled].filter((one) => one !== day) : [...toggled, day]));
  };
  const failure = useChanges(
    days.filter(isOpen).flatMap((day) => day.snapshots.map(({ id }) => id)),
    known,
  );
  return (
    <>
      {failure && <Note>{trans.__("It is not known what has changed in each snapshot: %1", failure.message)}</Note>}
      {days.map((day) => (
        <section key={day.date} aria-label={dayText(trans, day.date, new Date())}>
          <h3>
            <button
              type="button"
              className="fd-day"
              aria-expanded={isOpen(day)}
              title={day.date}
              onClick={() => toggle(day.date)}
            >
              {dayText(trans, day.date, new Date())}{" "}
              <span className="fd-muted">{trans._n("%1 snapshot", "%1 snapshots", day.snapshots.length)}</span>
            </button>
          </h3>
          {isOpen(day) && (
            <ul aria-label={trans.__("Snapshots of %1", day.date)}>
              {day.snapshots.map((snapshot) => (
                <li key={snapshot.id} className="fd-snapshot">
                  <button
                    type="button"
                    className="fd-run-open"
                    autoFocus={snapshot.id === focused}
                    onClick={() => open(snapshot.id)}
                  >
                    {snapshot.message && <span className="fd-run-title">{snapshot.message}</span>}
                    <span className={snapshot.message ? undefined : "fd-run-title"}>
                      {timeOfDay(new Date(snapshot.time * 1000))}
                    </span>
                    <span className="fd-run-facts">
                      <Changes changes={known.changes.get(snapshot.id)} />
                    </span>
                  </button>
                </li>
              ))}
            </ul>
          )}
        </section>
      ))}
    </>
  );
}

/** How much has changed since the snapshot before. */
function Changes({ changes }: { changes: SnapshotChanges | undefined }): JSX.Element {
  const { trans } = usePanelContext();
  if (!changes) return <>…</>;
  if (changes.files === null) return <>{trans.__("the oldest snapshot")}</>;
  const files = trans._n("%1 file changed", "%1 files changed", changes.files);
  return <>{`${files} · +${bytes(changes.added)}`}</>;
}
