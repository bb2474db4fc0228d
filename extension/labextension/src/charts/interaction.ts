/** How the pointer and the keys read the values of a chart and zoom into it. */

import { useState, type KeyboardEvent, type PointerEvent, type SVGAttributes } from "react";

import type { Cursor } from "./cursor";
import type { Plot, Range } from "./plot";

/** Pointers that move by fewer pixels do not select a range. */
const LEAST_DRAG = 5;

interface Interaction {
  /** The horizontal positions between which the user is selecting a range, in pixels. */
  drag: [number, number] | null;
  handlers: SVGAttributes<SVGSVGElement>;
}

export function useInteraction(plot: Plot, cursor: Cursor, setRange: (range: Range | null) => void): Interaction {
  const [drag, setDrag] = useState<[number, number] | null>(null);
  const zoom = (range: Range | null) => {
    if (range) setRange(plot.isWhole(range) ? null : range);
  };
  const onPointerDown = (event: PointerEvent<SVGSVGElement>) => {
    if (event.button) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    setDrag([leftOf(event), leftOf(event)]);
  };
  const onPointerMove = (event: PointerEvent<SVGSVGElement>) => {
    if (drag) setDrag([drag[0], leftOf(event)]);
    cursor.move(plot.series.x_label, plot.at(leftOf(event)));
  };
  const onPointerUp = () => {
    setDrag(null);
    if (drag && Math.abs(drag[1] - drag[0]) >= LEAST_DRAG) zoom(plot.between(...drag));
  };
  const keys = keyActions(plot, cursor, zoom, () => setRange(null));
  const onKeyDown = (event: KeyboardEvent) => {
    const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  };
  const leave = () => cursor.leave();
  const reading = { onPointerDown, onPointerMove, onPointerUp, onPointerLeave: leave, onBlur: leave, onKeyDown };
  return {
    drag,
    handlers: { ...reading, onPointerCancel: () => setDrag(null), onDoubleClick: () => setRange(null) },
  };
}

function keyActions(
  plot: Plot,
  cursor: Cursor,
  zoom: (range: Range | null) => void,
  reset: () => void,
): Partial<Record<string, () => void>> {
  const { x_label: label } = plot.series;
  const at = () => {
    const place = cursor.place();
    return place?.label === label ? place.at : null;
  };
  const read = (steps: number) => () => cursor.move(label, plot.move(at(), steps));
  const zoomIn = () => zoom(plot.zoomed(0.5, at()));
  return {
    ArrowLeft: read(-1),
    ArrowRight: read(1),
    "+": zoomIn,
    "=": zoomIn,
    "-": () => zoom(plot.zoomed(2, null)),
    0: reset,
  };
}

function leftOf(event: PointerEvent<SVGSVGElement>): number {
  return event.clientX - event.currentTarget.getBoundingClientRect().left;
}
