/** The cells that JupyterLab's commands "Insert Training Cell" and "Insert Cell That Starts a Cluster" insert. */

import { freeName } from "../state/forms";
import type { Cluster } from "../wire";
import { ledBy, type OpenNotebook } from "./cells";

const LOAD = "%load_ext farandole";
const LOADED = /^[ \t]*%load_ext[ \t]+farandole\b/m;

/** Matches a line that starts a cluster or attaches to one. */
const SETUP = /^[ \t]*%cluster[ \t]+(start|attach)\b/m;

/** The notebook into which cells are inserted. `cells` contains the sources of its existing code cells. */
export interface Target extends OpenNotebook {
  readonly cells: readonly string[];
}

/** Return a cell that starts a cluster with an unused name. Without a hub, the ranks run on this machine. */
export function startCell(clusters: readonly Cluster[], { cells }: Target, hub: boolean): string {
  const name = freeName(clusters);
  const where = hub ? "--workers 2" : "--local --ranks 2";
  return loaded(cells, `%cluster start ${where}${name === "main" ? "" : ` --name ${name}`}`);
}

/**
 * Return a cell that attaches to the first cluster without a leader, or starts a new cluster if there is none.
 *
 * Return null if the notebook already leads a cluster, or if one of its cells starts a cluster or attaches to one.
 */
export function setupCell(clusters: readonly Cluster[], target: Target, hub: boolean): string | null {
  const usable = clusters.filter((cluster) => cluster.state === "ready" || cluster.state === "starting");
  if (ledBy(usable, target).length || target.cells.some((cell) => SETUP.test(cell))) return null;
  const free = usable.find((cluster) => !cluster.lead && !cluster.local);
  return free ? loaded(target.cells, `%cluster attach ${free.name}`) : startCell(clusters, target, hub);
}

/** Return a cell with this line. If no other cell loads the magics, the line that loads them is put before it. */
function loaded(cells: readonly string[], line: string): string {
  return cells.some((cell) => LOADED.test(cell)) ? line : `${LOAD}\n${line}`;
}

/** A complete training cell, adapted from the first example notebook. It needs no other training code or download. */
export const TRAINING_CELL = `%%distributed_train --name digits -o digits
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import farandole as fd

# The page of runs shows these numbers. Change one, run the cell again, and compare both runs there.
hp = fd.config(lr=0.003, batch=64, epochs=15)

images, labels = load_digits(return_X_y=True)
images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
data = TensorDataset(images, torch.tensor(labels))

model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32 * 4 * 4, 10),
)
optimizer = torch.optim.Adam(model.parameters(), lr=hp["lr"])
loader = DataLoader(data, batch_size=hp["batch"], shuffle=True)
# Each rank gets its share of every batch; the gradients are averaged.
model, optimizer, loader = fd.prepare(model, optimizer, loader)

step = 0
for epoch in fd.track(range(hp["epochs"]), name="epochs"):
    for x, y in fd.track(loader, name=f"epoch {epoch + 1}"):
        optimizer.zero_grad()
        predicted = model(x)
        loss = nn.functional.cross_entropy(predicted, y)
        loss.backward()
        optimizer.step()
        step += 1
        accuracy = (predicted.argmax(dim=1) == y).float().mean()
        fd.report(step=step, epoch=epoch, loss=loss, accuracy=accuracy)

fd.result({"loss": loss.item()})`;
