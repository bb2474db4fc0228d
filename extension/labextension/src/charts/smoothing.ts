/** Smooths the lines of charts. */

import type { Numbers } from "../wire";

export const MOST_SMOOTHING = 0.99;

/** Return a user's text as a smoothing from 0 to `MOST_SMOOTHING`. A text that is not a number means no smoothing. */
export function smoothingOf(text: string): number {
  return Math.min(MOST_SMOOTHING, Math.max(0, Number(text) || 0));
}

/**
 * Return the exponential moving average of a line, without the bias towards zero at its beginning, as TensorBoard does.
 * Values that are not finite leave a gap and do not count.
 */
export function smoothed(values: Numbers, weight: number): Numbers {
  let [average, share] = [0, 0];
  return values.map((value) => {
    if (value === null) return null;
    average = average * weight + value * (1 - weight);
    share = share * weight + (1 - weight);
    return average / share;
  });
}
