import { pythonLanguage } from "@codemirror/lang-python";
import { classHighlighter, highlightTree } from "@lezer/highlight";

import { isDistributed, isInMagic, completionCode } from "../../src/notebooks/completion";
import { setupCell, startCell, TRAINING_CELL } from "../../src/notebooks/snippets";
import type * as wire from "../../src/wire";
import { example } from "../examples";

const { clusters } = example<wire.State>("state");
const target = (...cells: string[]) => ({ path: "a.ipynb", kernel: "", cells });
const body = TRAINING_CELL.slice(TRAINING_CELL.indexOf("\n") + 1);

describe("snippets", () => {
  test("a notebook without a cluster starts one with an unused name", () => {
    expect(setupCell([], target(), true)).toBe("%load_ext farandole\n%cluster start --workers 2");
    const led = clusters.filter((cluster) => cluster.lead);
    expect(setupCell(led, target(), true)).toBe("%load_ext farandole\n%cluster start --workers 2 --name main-2");
  });
  test("a cluster from the panel is attached", () => {
    expect(setupCell(clusters, target(), true)).toBe("%load_ext farandole\n%cluster attach exam");
  });
  test("a notebook that leads a cluster needs no further cell", () => {
    expect(setupCell(clusters, { ...target(), path: "work/digits.ipynb" }, true)).toBeNull();
  });
  test.each(["%load_ext farandole\n%cluster start -w 4", "%cluster  attach exam", "x = 1\n %cluster start --local"])(
    "a notebook with the cell %j needs it once",
    (cell) => {
      expect(setupCell([], target("1", cell), true)).toBeNull();
    },
  );
  test("cells with other magics do not set up a cluster, and the extension is loaded once", () => {
    const cells = ["%load_ext farandole", "%cluster status", "# %cluster start", "print('%cluster start')"];
    expect(setupCell([], target(...cells), true)).toBe("%cluster start --workers 2");
    expect(setupCell(clusters, target(...cells), true)).toBe("%cluster attach exam");
  });
  test("without a hub the ranks run on this machine", () => {
    expect(startCell([], target(), false)).toBe("%load_ext farandole\n%cluster start --local --ranks 2");
  });
  test("the training cell begins with its magic and reports", () => {
    expect(isDistributed(TRAINING_CELL)).toBe(true);
    expect(body).toContain("fd.report(");
    expect(body).not.toContain("%");
  });
  test("the training cell trains with the hyper-parameters that it records", () => {
    const names = ["lr", "batch", "epochs"];
    const recorded = /^hp = fd\.config\((.*)\)$/m.exec(body)?.[1] ?? "";
    expect(recorded.split(", ").map((one) => one.split("=")[0])).toEqual(names);
    for (const name of names) expect(body.split(`hp["${name}"]`)).toHaveLength(2);
  });
});

describe("highlighting", () => {
  const tokens = (code: string, from: number) => {
    const found: string[] = [];
    highlightTree(pythonLanguage.parser.parse(code), classHighlighter, (start, end, kind) => {
      if (start >= from) found.push(`${code.slice(start, end)} ${kind}`);
    });
    return found;
  };
  test.each(["%%distributed", "%%distributed --ranks 0,2-3", "%%distributed_train --name x -o cnn --lr-rule linear"])(
    "the body under %p is coloured as in a plain cell",
    (magic) => {
      expect(tokens(`${magic}\n${body}`, magic.length + 1)).toEqual(tokens(body, 0));
    },
  );
});

describe("completion", () => {
  const cells = ["import numpy", "%%distributed\nimport os", "%%distributed_train --name ä\nfd = 1"];
  test("distributed cells are recognised", () => {
    expect([...cells, "%%distributed_other\nx"].map(isDistributed)).toEqual([false, true, true, false]);
  });
  test("the request contains earlier distributed cells without their magics", () => {
    const source = "%%distributed\nos.getc";
    const asked = completionCode(cells, source, source.length);
    expect(asked.code.split("\n").map((line) => line.trim())).toEqual([
      "#",
      "import os",
      "#",
      "fd = 1",
      "#",
      "os.getc",
    ]);
    expect(Array.from(asked.code)).toHaveLength(asked.offset);
    expect(asked.offset - asked.shift).toBe(source.length);
  });
  test("the kernel completes the line of the magic by itself", () => {
    expect(isInMagic("%%distributed --ra\nx", 18)).toBe(true);
    expect(isInMagic("%%distributed --ra\nx", 19)).toBe(false);
  });
});
