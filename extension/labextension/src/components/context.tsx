/** The context of the panel's components. */

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
  /** Whether the panel is visible; a hidden panel watches nothing. */
  readonly visible: boolean;
  /** Open the notebook that a run or a cluster came from, at a cell if one is named. */
  readonly openNotebook: (origin: Origin, cell?: string) => void;
  readonly insertTraining: () => void;
  /** Ask the user to confirm; `action` is the label of the button. */
  readonly confirm: (title: string, body: string, action: string) => Promise<boolean>;
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

/** Return the state, and render the component again after each change. */
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

/** Watch runs and logs while the component is mounted and the panel is visible. */
export function useSubscription(subscription: Subscription): void {
  const { model, visible } = usePanelContext();
  const key = JSON.stringify(subscription);
  useEffect(() => (visible ? model.subscribe(JSON.parse(key) as Subscription) : undefined), [model, visible, key]);
}
