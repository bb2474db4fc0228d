/** Tests of the script with which the hub's pages write times. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { runInNewContext } from "node:vm";

import { clock } from "../src/format";

const TEMPLATE = readFileSync(join(__dirname, "../../../spawner_config/templates/moment.html"), "utf8");
const [, SCRIPT = ""] = /<script>(.*)<\/script>/s.exec(TEMPLATE) ?? [];

/** Return the text of a `time` element on a page of the hub. */
function shown(dateTime: string): string {
  document.body.innerHTML = `<time datetime="${dateTime}">${dateTime}</time>`;
  // A page with notices runs the script twice if it has other times too.
  runInNewContext(SCRIPT + SCRIPT, { document });
  return document.body.textContent;
}

test("the hub's pages write times in the form of the panel", () => {
  const now = new Date();
  const today = `${now.toISOString().slice(0, 16)}Z`;
  for (const time of [today, "2026-09-07T00:05Z", "2026-12-31T14:05Z"]) {
    expect(shown(time)).toBe(clock(Date.parse(time) / 1000, now));
  }
  expect(shown(today)).toMatch(/^\d\d:\d\d$/);
  expect(shown("2020-09-07T00:05Z")).toMatch(/^2020-09-0\d \d\d:\d\d$/);
});
