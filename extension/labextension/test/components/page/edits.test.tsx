/** Tests of the fields in the table of runs that the user edits. */

import { act } from "react";

import { RequestError } from "../../../src/net/requestError";
import { answered, detail, first, harness, named, open, press, table } from "./tablePage";

/** The server's answer to a change of a text that someone else has changed. */
const changed = { code: "changed" as const, message: "the text was changed elsewhere", runs: [] };

test.each([
  ["Name of one", "better", { name: "better" }, { name: "one" }],
  ["Tags of one, separated by commas", "a, b ,a,", { tags: ["a", "b"] }, { tags: first.tags }],
  ["Notes of one", "<b>good</b>", { notes: "<b>good</b>" }, { notes: detail.notes }],
])("%s are changed in place with Enter", async (label, text, edit, before) => {
  await open(named("one"));
  await harness.click("button", `Edit: ${label}`);
  expect(document.activeElement).toBe(harness.get("textbox", label));
  await harness.type("textbox", label, text);
  await press(document.activeElement, "Enter");
  expect(harness.requests).toContain(`editRun "id-one" ${JSON.stringify(edit)} ${JSON.stringify(before)}`);
  expect(document.activeElement).toBe(harness.get("button", `Edit: ${label}`));
});

test("the user edits all of the notes, of which a row has only the beginning", async () => {
  const whole = "n".repeat(3000);
  await open(() => ({ ...table, runs: [{ ...first, notes: `${whole.slice(0, 999)}…` }] }));
  harness.answers["run"] = () => ({ ...detail, notes: whole });
  await harness.click("button", "Edit: Notes of first-cnn");
  expect(harness.requests.filter((one) => one.startsWith("editRun"))).toEqual([]);
  expect((harness.get("textbox", "Notes of first-cnn") as HTMLTextAreaElement).value).toBe(whole);
  await harness.type("textbox", "Notes of first-cnn", `${whole}!`);
  await press(document.activeElement, "Enter");
  const [edit, before] = [{ notes: `${whole}!` }, { notes: whole }].map((texts) => JSON.stringify(texts));
  expect(harness.requests).toContain(`editRun ${JSON.stringify(first.id)} ${edit} ${before}`);
});

test.each([
  ["Name of first-c…", { name: "first-c…" }, "first-cnn", { name: "better" }, { name: "first-cnn" }],
  [
    "Tags of first-cnn, separated by commas",
    { tags: ["a", "…"] },
    "a, b, c",
    { tags: ["better"] },
    { tags: ["a", "b", "c"] },
  ],
])(
  "the user edits the whole of %s, of which a row has only the beginning",
  async (label, shown, whole, edit, before) => {
    await open(() => ({ ...table, runs: [{ ...first, ...shown }] }));
    harness.answers["run"] = () => ({ ...detail, tags: ["a", "b", "c"] });
    await harness.click("button", `Edit: ${label}`);
    expect((harness.get("textbox", label) as HTMLInputElement).value).toBe(whole);
    await harness.type("textbox", label, "better");
    await press(document.activeElement, "Enter");
    const [sent, seen] = [edit, before].map((texts) => JSON.stringify(texts));
    expect(harness.requests).toContain(`editRun ${JSON.stringify(first.id)} ${sent} ${seen}`);
  },
);

test("notes that cannot be read are not edited", async () => {
  await open(named("one"));
  harness.answers["run"] = () => {
    throw new RequestError({ code: "failed", message: "the notes cannot be read", runs: [] }, 500);
  };
  await harness.click("button", "Edit: Notes of one");
  expect(harness.root.querySelector("textarea")).toBeNull();
  expect(harness.root.textContent).toContain("the notes cannot be read");
});

test("a text is saved to its run, even if the row shows another run by then", async () => {
  await open(named("one"));
  await harness.click("button", "Edit: Name of one");
  harness.answers["table"] = named("two", "one");
  await harness.receive({ kind: "runs", runs: [], total: 2 });
  await answered();
  await harness.type("textbox", "Name of one", "better");
  await press(document.activeElement, "Enter");
  expect(harness.requests).toContain('editRun "id-one" {"name":"better"} {"name":"one"}');
});

test("Escape changes nothing, and a text that the server refuses stays in the field", async () => {
  await open(named("one"));
  await harness.click("button", "Edit: Name of one");
  await harness.type("textbox", "Name of one", "other");
  await press(document.activeElement, "Escape");
  expect(harness.requests.filter((one) => one.startsWith("editRun"))).toEqual([]);
  harness.answers["editRun"] = () => {
    throw new RequestError({ code: "invalid", message: "the name is too long", runs: [] }, 400);
  };
  await harness.click("button", "Edit: Name of one");
  await harness.type("textbox", "Name of one", "long");
  await press(document.activeElement, "Enter");
  expect((harness.get("textbox", "Name of one") as HTMLInputElement).value).toBe("long");
  expect(harness.root.textContent).toContain("the name is too long");
});

test.each([
  ["Name of one", "own", { summary: { ...detail.summary, name: "theirs" } }, { name: "own" }, { name: "theirs" }],
  [
    "Tags of one, separated by commas",
    "own",
    { tags: ["their", "tags"] },
    { tags: ["own"] },
    { tags: ["their", "tags"] },
  ],
  ["Notes of one", "own", { notes: "" }, { notes: "own" }, { notes: "" }],
])("%s that were changed elsewhere are replaced only by a second Enter", async (label, text, other, edit, before) => {
  await open(named("one"));
  await harness.click("button", `Edit: ${label}`);
  harness.answers["editRun"] = () => {
    throw new RequestError(changed, 409);
  };
  harness.answers["run"] = () => ({ ...detail, ...other });
  await harness.type("textbox", label, text);
  await press(document.activeElement, "Enter");
  await answered();
  const field = harness.get("textbox", label) as HTMLInputElement;
  expect([field.value, field.getAttribute("aria-invalid")]).toEqual([text, "true"]);
  expect(harness.root.textContent).toContain(changed.message);
  const count = () => harness.requests.filter((one) => one.startsWith("editRun")).length;
  const sent = count();
  await act(async () => {
    field.blur();
    await Promise.resolve();
  });
  expect([count(), (harness.get("textbox", label) as HTMLInputElement).value]).toEqual([sent, text]);
  harness.answers["editRun"] = () => first;
  field.focus();
  await press(field, "Enter");
  await answered();
  expect(harness.requests).toContain(`editRun "id-one" ${JSON.stringify(edit)} ${JSON.stringify(before)}`);
  expect(harness.get("button", `Edit: ${label}`)).toBeTruthy();
});

test("Escape after a change elsewhere discards the text", async () => {
  await open(named("one"));
  await harness.click("button", "Edit: Name of one");
  harness.answers["editRun"] = () => {
    throw new RequestError(changed, 409);
  };
  await harness.type("textbox", "Name of one", "own");
  await press(document.activeElement, "Enter");
  await answered();
  await press(harness.get("textbox", "Name of one"), "Escape");
  expect(harness.root.querySelector(".fd-cell-field")).toBeNull();
  expect(harness.requests.filter((one) => one.startsWith("editRun"))).toHaveLength(1);
});
