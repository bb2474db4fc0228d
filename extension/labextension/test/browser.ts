/** Functions of browsers that jsdom lacks. */

import { TextDecoder, TextEncoder } from "node:util";

class Observer {
  observe(): void {
    // jsdom has no layout.
  }
  unobserve(): void {
    // See above.
  }
  disconnect(): void {
    // See above.
  }
}

Object.assign(globalThis, { TextDecoder, TextEncoder, ResizeObserver: Observer, IS_REACT_ACT_ENVIRONMENT: true });

// axe calls it to recognise icon fonts.
if (typeof HTMLCanvasElement !== "undefined") HTMLCanvasElement.prototype.getContext = () => null;
