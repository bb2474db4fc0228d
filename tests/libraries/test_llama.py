"""A model of transformers is split by the plan that it publishes, and trains as on one rank."""

import json
import os
import subprocess
import sys

import pytest
from farandole import Cluster
from farandole.runs.store import RunStore

pytestmark = pytest.mark.release

CELL = """
import farandole as fd
import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, tie_word_embeddings=True,
)
model = LlamaForCausalLM(config)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randint(50, (24, 10))), batch_size=8)
model, optimizer, loader = fd.prepare(model, optimizer, loader, mesh={"tensor": -1})
losses = []
for _ in range(3):
    for (ids,) in loader:
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
split = sum(parameter.to_local().numel() if hasattr(parameter, "to_local") else parameter.numel()
            for parameter in model.model.layers.parameters())
fd.result([losses, split])
"""


def alone():
    """Run the cell in one process, and return its result."""
    script = CELL.replace("fd.result(", "import json\nprint(json.dumps(") + ")"
    printed = subprocess.run(
        [sys.executable, "-c", script], env=dict(os.environ), check=True, capture_output=True, text=True, timeout=240
    )
    return json.loads(printed.stdout.splitlines()[-1])


def test_llama_is_split_by_its_own_plan(tmp_path):
    with Cluster.start(local=True, ranks=2, backend="torch", store=RunStore(tmp_path)) as cluster:
        results = cluster.train(CELL).results
    losses, whole = alone()
    assert losses[-1] < losses[0]
    for found, split in results.values():
        assert found == pytest.approx(losses, abs=1e-5)
        assert split < 0.6 * whole
