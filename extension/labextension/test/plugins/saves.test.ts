/** Tests that the saves of a notebook wait for each other. */

import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import { Signal } from "@lumino/signaling";

import { queueSaves, saveInTurn } from "../../src/plugins/saves";

/** A document whose saves end when the test says so. */
class Document {
  readonly model = { dirty: true, contentChanged: new Signal<object, void>({}) };
  readonly begun: { end: () => void; fail: (reason: Error) => void }[] = [];

  save(): Promise<void> {
    return new Promise((end, fail) => this.begun.push({ end, fail }));
  }
}

const settled = () => new Promise((done) => setTimeout(done));

test("a save begins after the end of the one before", async () => {
  const document = new Document();
  queueSaves(document);
  const both = [document.save(), document.save()];
  await settled();
  expect(document.begun).toHaveLength(1);
  document.begun[0]?.end();
  await both[0];
  await settled();
  expect(document.begun).toHaveLength(2);
  document.begun[1]?.end();
  await both[1];
});

test("what changes during a save is not regarded as saved", async () => {
  const document = new Document();
  queueSaves(document);
  for (const changes of [true, false]) {
    const saving = document.save();
    await settled();
    if (changes) document.model.contentChanged.emit();
    document.model.dirty = false; // as JupyterLab does at the end of a save
    document.begun.pop()?.end();
    await saving;
    expect(document.model.dirty).toBe(changes);
  }
});

test("a save that fails tells its caller, and the next one begins", async () => {
  const document = new Document();
  queueSaves(document);
  const first = document.save();
  const second = document.save();
  await settled();
  document.begun[0]?.fail(new Error("the disk is full"));
  await expect(first).rejects.toThrow("the disk is full");
  await settled();
  document.begun[1]?.end();
  await expect(second).resolves.toBeUndefined();
});

test("each notebook that is opened has a queue of its own", async () => {
  const added = new Signal<object, NotebookPanel>({});
  saveInTurn({ widgetAdded: added } as unknown as INotebookTracker);
  const documents = [new Document(), new Document()];
  for (const context of documents) added.emit({ context } as unknown as NotebookPanel);
  for (const document of documents) void document.save();
  await settled();
  expect(documents.map((document) => document.begun.length)).toEqual([1, 1]);
});
