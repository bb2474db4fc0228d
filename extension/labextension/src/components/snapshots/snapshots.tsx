/** The tab "Snapshots" of the panel: the list of snapshots, the files of one of them, or the versions of a file. */

import { useRef, type JSX } from "react";

import { isKnown } from "../../state/reducer";
import type { KnownSnapshots, Place } from "../../state/snapshots";
import { usePanelContext, usePanelState } from "../context";
import { Empty } from "../parts";
import { SnapshotFiles } from "./files";
import { SnapshotList } from "./list";
import { useRestore } from "./useRestore";
import { FileVersions } from "./versions";

interface Props {
  known: KnownSnapshots;
  place: Place;
  setPlace: (place: Place) => void;
}

export function Snapshots({ known, place, setPlace }: Props): JSX.Element {
  const { trans } = usePanelContext();
  const state = usePanelState();
  const restore = useRestore(place);
  // What the user opens takes the focus, but not when the panel shows this tab again.
  const first = useRef(place);
  const focus = place !== first.current;
  if (isKnown(state) && !state.hub) {
    return <Empty title={trans.__("There is no hub. Snapshots are at a hub, so none can be taken here.")} />;
  }
  if (place.show === "versions") {
    const { of, back } = place;
    return (
      <FileVersions key={JSON.stringify(of)} of={of} focus={focus} back={() => setPlace(back)} restore={restore} />
    );
  }
  if (place.show === "files") {
    const { snapshot, path } = place;
    return (
      <SnapshotFiles
        key={snapshot.id}
        snapshot={snapshot}
        path={path}
        focus={focus}
        setPath={(next) => setPlace({ ...place, path: next })}
        back={() => setPlace({ show: "list", previous: snapshot.id })}
        openVersions={(file) => setPlace({ show: "versions", of: { path: file }, back: place })}
        restore={restore}
      />
    );
  }
  const open = (id: string) => {
    const snapshot = known.page?.snapshots.find((one) => one.id === id);
    if (snapshot) setPlace({ show: "files", snapshot, path: "" });
  };
  return <SnapshotList known={known} previous={focus ? place.previous : ""} open={open} />;
}
