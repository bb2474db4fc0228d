/** The cells that the commands insert. */

import { freeName } from "../state/forms";
import type { Cluster } from "../wire";
import { ledBy, type OpenNotebook } from "./cells";

const LOAD = "%load_ext farandole";
const LOADED = /^[ \t]*%load_ext[ \t]+farandole\b/m;

/** A line that starts or attaches a cluster. */
const SETUP = /^[ \t]*%cluster[ \t]+(start|attach)\b/m;

/** The notebook that receives the cells, with the sources of its present cells. */
export interface Target extends OpenNotebook {
  readonly cells: readonly string[];
}

/** Return a cell that starts a cluster with an unused name; without a hub, its ranks run on this machine. */
export function startCell(clusters: readonly Cluster[], { cells }: Target, hub: boolean): string {
  const name = freeName(clusters);
  const where = hub ? "--workers 2" : "--local --ranks 2";
  return loaded(cells, `%cluster start ${where}${name === "main" ? "" : ` --name ${name}`}`);
}

/**
 * Return a cell that attaches the first cluster without a leader, or starts a cluster.
 *
 * Return null if the notebook leads a cluster, or if one of its cells starts or attaches one.
 */
export function setupCell(clusters: readonly Cluster[], target: Target, hub: boolean): string | null {
  const usable = clusters.filter((cluster) => cluster.state === "ready" || cluster.state === "starting");
  if (ledBy(usable, target).length || target.cells.some((cell) => SETUP.test(cell))) return null;
  const free = usable.find((cluster) => !cluster.lead && !cluster.local);
  return free ? loaded(target.cells, `%cluster attach ${free.name}`) : startCell(clusters, target, hub);
}

/** Return a line, below the line that loads the magics unless a cell has that line. */
function loaded(cells: readonly string[], line: string): string {
  return cells.some((cell) => LOADED.test(cell)) ? line : `${LOAD}\n${line}`;
}

/** A complete training cell, adapted from the first notebook. It needs no other cell and no download. */
export const TRAINING_CELL = `%%distributed_train --name digits -o digits
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import farandole as fd

images, labels = load_digits(return_X_y=True)
images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
data = TensorDataset(images, torch.tensor(labels))

model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32 * 4 * 4, 10),
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loader = DataLoader(data, batch_size=64, shuffle=True)
# Each rank gets its share of every batch; the gradients are averaged.
model, optimizer, loader = fd.prepare(model, optimizer, loader)

step = 0
for epoch in range(15):
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
