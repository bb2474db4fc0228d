/** Tests that the log of a run opens once in the main area, with simulated objects of JupyterLab. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { ReactElement } from "react";

import type { PanelContext } from "../../src/components/context";
import { ENGLISH } from "../../src/i18n";
import { openLog } from "../../src/plugins/logs";
import { EMPTY } from "../../src/state/reducer";
import type * as wire from "../../src/wire";
import { example } from "../examples";

jest.mock("@jupyterlab/apputils", () => ({
  MainAreaWidget: class {
    readonly title = {};
    readonly content: unknown;
    constructor(options: { content: unknown }) {
      this.content = options.content;
    }
  },
  ReactWidget: class {
    addClass = jest.fn();
    update = jest.fn();
  },
}));
jest.mock("@jupyterlab/ui-components", () => ({ LabIcon: jest.fn() }));

interface Tab {
  id: string;
  title: { label: string };
  content: { render(): ReactElement<{ children: ReactElement<PageProps> }> };
}

interface PageProps {
  id: string;
  rank: number;
  setTitle: (title: string) => void;
}

const { runs } = example<wire.RunsMessage>("runs");
const named = runs[0] as wire.RunSummary;
const pageOf = (tab: Tab | undefined) => tab?.content.render().props.children.props;

test("the log of a run is a tab, which shows another rank when it is opened again", () => {
  const tabs: Tab[] = [];
  const activateById = jest.fn();
  const model = { state: { ...EMPTY, runs } };
  const shell = { widgets: () => tabs, add: (tab: Tab) => tabs.push(tab), activateById };
  const open = (run: string, rank: number) =>
    openLog({ shell } as unknown as JupyterFrontEnd, { trans: ENGLISH, model } as unknown as PanelContext, run, rank);
  open(named.id, 0);
  open("old", 1);
  open(named.id, 3);
  expect(tabs.map(({ id }) => id)).toEqual([`farandole-log-${named.id}`, "farandole-log-old"]);
  expect(pageOf(tabs[0])).toMatchObject({ id: named.id, rank: 3 });
  expect(activateById).toHaveBeenLastCalledWith(`farandole-log-${named.id}`);
  // The page has not received all runs, so it learns the names of the others from the server.
  expect(tabs.map(({ title }) => title.label)).toEqual(["Log of first-cnn, rank 0", "Log of old, rank 1"]);
  pageOf(tabs[1])?.setTitle("Log of the old run, rank 2");
  expect(tabs[1]?.title.label).toBe("Log of the old run, rank 2");
});
