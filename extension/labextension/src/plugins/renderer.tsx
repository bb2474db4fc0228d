/** Shows a run in the output of a cell: as it is in the run store, or as a static picture if the server has no such run. */

import { ReactWidget } from "@jupyterlab/apputils";
import type { IRenderMime, IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { Panel } from "@lumino/widgets";

import { PanelContextProvider, type PanelContext } from "../components/context";
import { Dashboard } from "../components/runs/dashboard";

/** The MIME type of a run, which `farandole/notebook/display.py` puts beside the run's static forms. */
export const RUN_TYPE = "application/vnd.farandole.run+json";

/** Return the id of the run in this output, or an empty string if the output has another form than this version's. */
function runIn(model: IRenderMime.IMimeModel): string {
  const data = model.data[RUN_TYPE];
  return data && typeof data === "object" && "run" in data && typeof data.run === "string" ? data.run : "";
}

export class RunRenderer extends Panel implements IRenderMime.IRenderer {
  constructor(
    private readonly context: PanelContext,
    private readonly registry: IRenderMimeRegistry,
  ) {
    super();
  }

  /** Show the run of an output. The kernel updates the output of an active run every second, with the same run. */
  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this.source = model;
    const run = runIn(model);
    if (run !== this.run) this.follow(run);
    if (!this.known) await this.showStatic(model);
  }

  private follow(run: string): void {
    this.run = run;
    this.known = false;
    this.dashboard?.dispose();
    this.dashboard = run ? this.dashboardOf(run) : null;
    if (this.dashboard) this.addWidget(this.dashboard);
  }

  private dashboardOf(run: string): ReactWidget {
    const dashboard = ReactWidget.create(
      <PanelContextProvider value={this.context}>
        <Dashboard id={run} onKnown={this.setKnown} />
      </PanelContextProvider>,
    );
    dashboard.hide();
    return dashboard;
  }

  /** Show the dashboard if the server knows the run, and the static form otherwise. */
  private readonly setKnown = (known: boolean): void => {
    if (this.isDisposed || known === this.known) return;
    this.known = known;
    this.dashboard?.setHidden(!known);
    if (known) this.replaceStatic(undefined);
    else if (this.source) void this.showStatic(this.source);
  };

  /** Show the best of the other forms in the output with JupyterLab's own renderer. */
  private async showStatic({ data: forms, metadata, trusted }: IRenderMime.IMimeModel): Promise<void> {
    const data = Object.fromEntries(Object.entries(forms).filter(([type]) => type !== RUN_TYPE));
    const type = this.registry.preferredMimeType(data, trusted ? "any" : "ensure");
    if (type !== this.type) this.replaceStatic(type);
    await this.picture?.renderModel(this.registry.createModel({ data, metadata, trusted }));
  }

  private replaceStatic(type: string | undefined): void {
    this.picture?.dispose();
    this.picture = type ? this.registry.createRenderer(type) : null;
    this.type = type;
    if (this.picture) this.addWidget(this.picture);
  }

  private source: IRenderMime.IMimeModel | null = null;
  private run = "";
  private known = false;
  private dashboard: ReactWidget | null = null;
  private picture: IRenderMime.IRenderer | null = null;
  private type: string | undefined;
}
