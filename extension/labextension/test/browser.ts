/** Defines browser functions that jsdom lacks. */

import { TextDecoder, TextEncoder } from "node:util";

class Observer {
  observe(): void {
    // jsdom has no layout, so there is no size to observe.
  }
  unobserve(): void {
    // Nothing is observed.
  }
  disconnect(): void {
    // Nothing is observed.
  }
}

class DragEvent extends Event {}

if (typeof Element !== "undefined") Element.prototype.setPointerCapture = () => undefined;

Object.assign(globalThis, {
  TextDecoder,
  TextEncoder,
  ResizeObserver: Observer,
  DragEvent,
  IS_REACT_ACT_ENVIRONMENT: true,
});

// axe calls this function to recognise icon fonts. jsdom reports an error if it is called.
if (typeof HTMLCanvasElement !== "undefined") HTMLCanvasElement.prototype.getContext = () => null;
