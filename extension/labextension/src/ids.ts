/** The ids of this extension's widgets, plugins and commands in JupyterLab. */

export const PANEL_ID = "farandole-panel";
export const RUNS_ID = "farandole-runs";

export const Plugins = {
  model: "farandole:model",
  panel: "farandole:panel",
  runs: "farandole:runs",
  snippets: "farandole:snippets",
  status: "farandole:status",
  marks: "farandole:marks",
  saves: "farandole:saves",
  completion: "farandole:completion",
  renderer: "farandole:renderer",
  notifications: "farandole:notifications",
  notices: "farandole:notices",
  templates: "farandole:templates",
  snapshots: "farandole:snapshots",
} as const;

export const Commands = {
  open: "farandole:open",
  runs: "farandole:runs",
  startCluster: "farandole:start-cluster",
  insertTraining: "farandole:insert-training",
  insertStart: "farandole:insert-start",
  openCell: "farandole:open-cell",
  notifyInBrowser: "farandole:notify-in-browser",
  openLog: "farandole:log",
  newFromTemplate: "farandole:new-from-template",
  about: "farandole:about",
  earlierVersions: "farandole:earlier-versions",
} as const;
