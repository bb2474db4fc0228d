/** The React context that all components of the panel share. */

import type { TranslationBundle } from "@jupyterlab/translation";
import {
  createContext,
  useCallback,
  useContext,
  useEffect,
  useSyncExternalStore,
  type JSX,
  type ReactNode,
} from "react";

import { TranslatorContext } from "../i18n";
import type { Origin } from "../notebooks/cells";
import type { IPanelModel } from "../state/model";
import type { PanelState } from "../state/reducer";
import type { Subscription } from "../state/subscriptions";

export interface PanelContext {
  readonly model: IPanelModel;
  readonly trans: TranslationBundle;
  /** Whether the panel is visible. A hidden panel subscribes to no runs and logs. */
  readonly visible: boolean;
  /** Open the notebook that started a run or leads a cluster. If `cell` is given, scroll to the cell with this id. */
  readonly openNotebook: (origin: Origin, cell?: string) => void;
  /** Open the log of a rank in JupyterLab's main area. */
  readonly openLog: (run: string, rank: number) => void;
  readonly insertTraining: () => void;
  /** Open the page of runs in the main area. */
  readonly openPage: () => void;
  /** Ask the user to confirm an action. `action` is the label of the button that confirms. */
  readonly confirm: (title: string, body: string, action: string) => Promise<boolean>;
  /** Let the user choose one of several actions. Return its place in the list, or -1 if the user cancels. */
  readonly choose: (title: string, body: string, actions: readonly string[]) => Promise<number>;
  /** Ask the user for a text. Return null if the user cancels. */
  readonly ask: (title: string, label: string, text: string, action: string) => Promise<string | null>;
  /** Make JupyterLab's file browser show files that have changed. */
  readonly refreshFiles: () => void;
}

const Context = createContext<PanelContext | null>(null);

export function PanelContextProvider(props: { value: PanelContext; children: ReactNode }): JSX.Element {
  return (
    <Context.Provider value={props.value}>
      <TranslatorContext.Provider value={props.value.trans}>{props.children}</TranslatorContext.Provider>
    </Context.Provider>
  );
}

export function usePanelContext(): PanelContext {
  const context = useContext(Context);
  if (!context) throw new Error("a component of the panel is used outside of the panel");
  return context;
}

/** Return the state of the page. The component is rendered again after each change of the state. */
export function usePanelState(): PanelState {
  const { model } = usePanelContext();
  const subscribe = useCallback(
    (changed: () => void) => {
      model.changed.connect(changed);
      return () => void model.changed.disconnect(changed);
    },
    [model],
  );
  return useSyncExternalStore(subscribe, () => model.state);
}

/** Subscribe to runs and logs while the component is mounted and the panel is visible. */
export function useSubscription(subscription: Subscription): void {
  const { model, visible } = usePanelContext();
  const key = JSON.stringify(subscription);
  useEffect(() => (visible ? model.subscribe(JSON.parse(key) as Subscription) : undefined), [model, visible, key]);
}
