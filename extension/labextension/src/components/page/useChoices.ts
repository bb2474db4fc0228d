/** Keeps which columns the user has chosen in JupyterLab's state database. */

import type { IStateDB } from "@jupyterlab/statedb";
import { useCallback, useEffect, useState } from "react";

import type { Choices } from "./columns";

const KEY = "farandole:columns";

/** The methods of JupyterLab's state database that the page uses. */
export type Store = Pick<IStateDB, "fetch" | "save">;

export function useChoices(store: Store | null): [Choices, (choices: Choices) => void] {
  const [choices, setChoices] = useState<Choices>({});
  useEffect(() => {
    void store?.fetch(KEY).then((kept) => setChoices((before) => ({ ...choicesIn(kept), ...before })));
  }, [store]);
  const choose = useCallback(
    (next: Choices) => {
      setChoices(next);
      void store?.save(KEY, next);
    },
    [store],
  );
  return [choices, choose];
}

/** Return the choices in a kept value. Values of another form are ignored. */
function choicesIn(kept: unknown): Choices {
  const entries = kept && typeof kept === "object" ? Object.entries(kept) : [];
  return Object.fromEntries(entries.filter((entry): entry is [string, boolean] => typeof entry[1] === "boolean"));
}
