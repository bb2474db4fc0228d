/** Tests of completion in cells that run on the ranks. */

import type { CompletionHandler, ICompletionContext } from "@jupyterlab/completer";

import { RankCompleter } from "../../src/plugins/completer";

jest.mock("@jupyterlab/notebook", () => ({ NotebookPanel: jest.fn() }));
const { NotebookPanel: Panel } = jest.requireMock<{ NotebookPanel: new () => object }>("@jupyterlab/notebook");

describe("completion", () => {
  const source = "%%distributed\nos.getc";
  const cells = ["%%distributed_train\nimport os", source].map((code) => ({
    editor: { model: { sharedModel: { getSource: () => code } } },
    model: { sharedModel: { getSource: () => code } },
  }));
  const requestComplete = jest.fn();
  const requestInspect = jest.fn();
  const context = {
    widget: Object.assign(new Panel(), { content: { widgets: cells } }),
    editor: cells[1]?.editor,
    session: { kernel: { requestComplete, requestInspect } },
  } as unknown as ICompletionContext;
  const asked: CompletionHandler.IRequest = { text: source, offset: source.length };

  test("the kernel's answer is moved to the cursor", async () => {
    requestComplete.mockImplementation(({ cursor_pos }: { cursor_pos: number }) => {
      const types = [{ text: "getcwd", type: "function" }];
      const metadata = { _jupyter_types_experimental: types };
      const content = {
        status: "ok",
        matches: ["getcwd"],
        cursor_start: cursor_pos - 4,
        cursor_end: cursor_pos,
        metadata,
      };
      return Promise.resolve({ content });
    });
    const completer = new RankCompleter();
    expect(await completer.isApplicable(context)).toBe(true);
    expect(await completer.fetch(asked, context)).toEqual({
      start: source.length - 4,
      end: source.length,
      items: [{ label: "getcwd", insertText: "getcwd", type: "function" }],
    });
    const [{ code }] = requestComplete.mock.lastCall as [{ code: string }];
    expect(code).toContain("import os");
  });

  test("an item has the kernel's documentation of its name", async () => {
    const patch = { start: source.length - 4, end: source.length, value: "getcwd" };
    const item = { label: "getcwd" };
    const found = { status: "ok", found: true, data: { "text/plain": "Return the current folder." } };
    requestInspect.mockResolvedValue({ content: found });
    const resolved = await new RankCompleter().resolve(item, context, patch);
    expect(resolved).toEqual({ ...item, documentation: "Return the current folder." });
    const [{ code, cursor_pos }] = requestInspect.mock.lastCall as [{ code: string; cursor_pos: number }];
    expect(code).toContain("import os");
    expect(code.slice(0, cursor_pos)).toMatch(/\nos\.getcwd$/);
    requestInspect.mockResolvedValue({ content: { status: "ok", found: false, data: {} } });
    expect(await new RankCompleter().resolve(item, context, patch)).toBe(item);
  });

  test("the line of the magic is left to the kernel", async () => {
    requestComplete.mockClear();
    expect((await new RankCompleter().fetch({ ...asked, offset: 5 }, context)).items).toEqual([]);
    expect(requestComplete).not.toHaveBeenCalled();
  });
});
