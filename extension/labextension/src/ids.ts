/** The ids of this extension's panel, plugins and commands in JupyterLab. */

export const PANEL_ID = "farandole-panel";

export const Plugins = {
  model: "farandole:model",
  panel: "farandole:panel",
  snippets: "farandole:snippets",
  status: "farandole:status",
  marks: "farandole:marks",
  completion: "farandole:completion",
  renderer: "farandole:renderer",
  templates: "farandole:templates",
} as const;

export const Commands = {
  open: "farandole:open",
  startCluster: "farandole:start-cluster",
  insertTraining: "farandole:insert-training",
  insertStart: "farandole:insert-start",
  openCell: "farandole:open-cell",
  newFromTemplate: "farandole:new-from-template",
  about: "farandole:about",
} as const;
