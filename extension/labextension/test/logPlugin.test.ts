/** Tests that the log of a run opens once in the main area, with simulated objects of JupyterLab. */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { ReactElement } from "react";

import type { PanelContext } from "../src/components/context";
import { ENGLISH } from "../src/i18n";
import { openLog } from "../src/plugins/logs";

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
  content: { render(): ReactElement<{ children: ReactElement<{ id: string; rank: number }> }> };
}

test("the log of a run is a tab, which shows another rank when it is opened again", () => {
  const tabs: Tab[] = [];
  const activateById = jest.fn();
  const shell = { widgets: () => tabs, add: (tab: Tab) => tabs.push(tab), activateById };
  const open = (run: string, rank: number) =>
    openLog({ shell } as unknown as JupyterFrontEnd, { trans: ENGLISH } as PanelContext, run, rank);
  open("a", 0);
  open("b", 0);
  open("a", 3);
  expect(tabs.map(({ id }) => id)).toEqual(["farandole-log-a", "farandole-log-b"]);
  expect(tabs[0]?.content.render().props.children.props).toEqual({ id: "a", rank: 3 });
  expect(activateById).toHaveBeenLastCalledWith("farandole-log-a");
});
