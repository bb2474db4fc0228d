/** Translates the texts of the components that the panel and the dashboard share. */

import type { TranslationBundle } from "@jupyterlab/translation";
import { createContext, useContext } from "react";

export type Translator = Pick<TranslationBundle, "__" | "_n">;

function fill(text: string, values: unknown[]): string {
  return text.replace(/%(\d)/g, (_, place: string) => String(values[Number(place) - 1]));
}

/** A translator that returns the English texts, for components that are rendered without JupyterLab. */
export const ENGLISH: Translator = {
  __: (text, ...values: unknown[]) => fill(text, values),
  _n: (one, many, count, ...values: unknown[]) => fill(count === 1 ? one : many, [count, ...values]),
};

export const TranslatorContext = createContext(ENGLISH);

export function useTranslator(): Translator {
  return useContext(TranslatorContext);
}
