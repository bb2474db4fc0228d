/** Tests of the renderer that shows either the dashboard of a run or a static form of the output. */

import type { TranslationBundle } from "@jupyterlab/translation";
import type { IRenderMime, IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { Widget } from "@lumino/widgets";
import { act, type JSX } from "react";

import { ENGLISH } from "../../src/i18n";
import { RequestError } from "../../src/net/requestError";
import { RUN_TYPE, RunRenderer } from "../../src/plugins/renderer";
import type { IPanelModel } from "../../src/state/model";
import { EMPTY } from "../../src/state/reducer";
import type * as wire from "../../src/wire";
import { example } from "../examples";

jest.mock("@jupyterlab/apputils", () => {
  const { createRoot } = jest.requireActual<typeof import("react-dom/client")>("react-dom/client");
  const lumino = jest.requireActual<typeof import("@lumino/widgets")>("@lumino/widgets");
  class ReactWidget extends lumino.Widget {
    static create(element: JSX.Element): ReactWidget {
      const widget = new ReactWidget();
      const root = createRoot(widget.node);
      root.render(element);
      widget.disposed.connect(() => root.unmount());
      return widget;
    }
  }
  return { ReactWidget };
});

const HTML = "<img alt='loss: last 0.3'>";
const detail = example<wire.RunDetail>("run-detail");
const unknown = new RequestError(example<wire.ProblemMessage>("problem").problem, 404);

/** A static form of an output. */
class Picture extends Widget implements IRenderMime.IRenderer {
  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this.node.textContent = (model.data["text/html"] ?? model.data["text/plain"]) as string;
    return Promise.resolve();
  }
}

const preferredMimeType = jest.fn((data: object) => Object.keys(data)[0]);
const registry = {
  preferredMimeType,
  createRenderer: () => new Picture(),
  createModel: (options: object) => options,
} as unknown as IRenderMimeRegistry;

let run: jest.Mock;
let stopListening: jest.Mock;
let renderer: RunRenderer;

function create(answer: () => Promise<wire.RunDetail>): void {
  run = jest.fn(answer);
  stopListening = jest.fn();
  const model = {
    api: { run },
    state: { ...EMPTY, connection: "open" },
    changed: { connect: jest.fn(), disconnect: jest.fn() },
    subscribe: () => stopListening,
  } as unknown as IPanelModel;
  const opened = { openNotebook: jest.fn(), openLog: jest.fn(), openPage: jest.fn() };
  const dialogs = { confirm: jest.fn(), choose: jest.fn(), ask: jest.fn() };
  const rest = { visible: true, ...opened, ...dialogs, insertTraining: jest.fn(), refreshFiles: jest.fn() };
  renderer = new RunRenderer({ model, trans: ENGLISH as TranslationBundle, ...rest }, registry);
}

async function render(data: object, trusted = true): Promise<void> {
  await act(() => renderer.renderModel({ data, metadata: {}, trusted } as unknown as IRenderMime.IMimeModel));
}

const output = (text: string, id = "r1") => ({ [RUN_TYPE]: { run: id, version: 1 }, "text/html": text });
const visible = () => renderer.widgets.filter((widget) => !widget.isHidden).map((widget) => widget.node.textContent);

afterEach(() => {
  act(() => renderer.dispose());
});

test("a run that the server knows is drawn in place of the picture", async () => {
  create(() => Promise.resolve(detail));
  await render(output(HTML));
  expect(run).toHaveBeenCalledWith("r1");
  expect(renderer.widgets).toHaveLength(1);
  expect(visible()[0]).toContain("first-cnn");
});

test("a run that the server does not know is a picture, which follows the output", async () => {
  create(() => Promise.reject(unknown));
  await render(output(HTML));
  expect(visible()).toEqual([HTML]);
  await render(output("finished"));
  expect(visible()).toEqual(["finished"]);
  expect(run).toHaveBeenCalledTimes(1);
});

test.each(["constructor", "__proto__"])("a run %p that the server does not know is a picture", async (id) => {
  create(() => Promise.reject(unknown));
  await render(output(HTML, id));
  expect(visible()).toEqual([HTML]);
});

test("updates of the same run keep its dashboard, and another run gets another one", async () => {
  create(() => Promise.resolve(detail));
  await render(output(HTML));
  const [dashboard] = renderer.widgets.slice(-1);
  await render(output("an update"));
  expect(renderer.widgets.slice(-1)).toEqual([dashboard]);
  await render(output(HTML, "r2"));
  expect(run.mock.calls).toEqual([["r1"], ["r2"]]);
  expect(dashboard?.isDisposed).toBe(true);
  expect(visible()[0]).toContain("first-cnn");
  run.mockRejectedValue(unknown);
  await render(output(HTML, "r3"));
  expect(visible()).toEqual([HTML]);
});

test.each([
  [true, "any"],
  [false, "ensure"],
])("JupyterLab chooses among the other forms by the trust in the notebook: %p", async (trusted, safe) => {
  create(() => Promise.reject(unknown));
  await render(output(HTML), trusted);
  expect(preferredMimeType).toHaveBeenLastCalledWith({ "text/html": HTML }, safe);
});

test.each([null, {}, { run: 7 }, "r1", []])("an output of another form is a picture: %p", async (value) => {
  create(() => Promise.resolve(detail));
  await render({ [RUN_TYPE]: value, "text/plain": "Run r1" });
  expect(visible()).toEqual(["Run r1"]);
  expect(run).not.toHaveBeenCalled();
});

test("an output that is removed follows its run no longer", async () => {
  create(() => Promise.resolve(detail));
  await render(output(HTML));
  act(() => renderer.dispose());
  expect(stopListening).toHaveBeenCalled();
});
