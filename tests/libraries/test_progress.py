"""Training loops with progress bars of tqdm and rich, and scripts with argparse, train on all ranks; bars are live."""

import time

import pytest
from farandole import Cluster
from farandole.protocol import Status
from farandole.runs.store import RunStore

from tests.cells import text

STEPS = 60
TRAIN = """
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
{begin}
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in {loop}:
    optimizer.zero_grad()
    model(torch.randn(8, 10)).square().mean().backward()
    optimizer.step()
    {each}
    time.sleep(0.05)
{end}
dist.destroy_process_group()
import farandole
farandole.result([value for each in model.parameters() for value in each.detach().flatten().tolist()])
"""
TQDM = {"loop": f"tqdm(range({STEPS}), desc='steps')", "end": "print('trained')"}
TRACK = {
    "begin": "import rich\nfrom rich.progress import track",
    "loop": f"track(range({STEPS}), description='steps')",
    "end": "rich.print('[bold]trained[/bold]')",
}
ARGPARSE = {
    "begin": "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--steps', type=int, default=60)"
    "\nargs = parser.parse_args()",
    "loop": "range(args.steps)",
    "each": "print('step', step)",
    "end": "print('trained for', args.steps, 'steps')",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with Cluster.start(local=True, ranks=2, backend="torch", store=store) as cluster:
        yield cluster


def train(cluster, parts, **options):
    """Train on all ranks. Return the blocks that were shown, each with the seconds before the end of the run."""
    shown = []
    code = TRAIN.format(**{"each": "pass", **parts})
    run = cluster.train(code, show=lambda block: shown.append((time.monotonic(), block)), **options)
    assert run.status is Status.FINISHED
    assert run.results[0] == run.results[1]
    return [(time.monotonic() - at, block) for at, block in shown]


def said(block):
    return block.text or (block.bundle or {}).get("text/plain", "")


@pytest.mark.parametrize("module", ["tqdm", "tqdm.auto", "tqdm.notebook"])
def test_bars_of_tqdm_move_while_a_cell_trains(cluster, module):
    blocks = train(cluster, {"begin": f"from {module} import tqdm", **TQDM})
    moving = [said(block) for before, block in blocks if before > 0.3 and "steps:" in said(block)]
    assert len(set(moving)) >= 3
    assert not any(f"{STEPS}/{STEPS}" in each for each in moving)
    assert f"{STEPS}/{STEPS}" in "".join(said(block) for _, block in blocks)
    assert "trained\n" in text(block for _, block in blocks)


@pytest.mark.release
def test_a_bar_of_rich_moves_and_its_print_is_shown(cluster):
    blocks = train(cluster, TRACK)
    frames = [(before, block) for before, block in blocks if "steps" in said(block)]
    assert {block.ranks for _, block in frames} == {(0,), (1,)}
    for rank in (0, 1):
        own = [(before, block) for before, block in frames if block.ranks == (rank,)]
        # All frames of a rank's bar belong to one display, which is updated in place.
        [display] = {block.display for _, block in own}
        assert display
        assert len({said(block) for before, block in own if before > 0.3}) >= 3
        assert "100%" in said(own[-1][1])
    assert "trained" in "".join(said(block) for _, block in blocks)


@pytest.mark.release
@pytest.mark.parametrize(("options", "steps"), [({}, STEPS), ({"script": ["/there/train.py", "--steps", "40"]}, 40)])
def test_a_script_with_argparse_trains_as_a_cell_and_as_a_file(cluster, options, steps):
    blocks = train(cluster, ARGPARSE, options=options)
    assert len([block for before, block in blocks if before > 0.3]) >= 3
    lines = [*(f"step {step}" for step in range(steps)), f"trained for {steps} steps"]
    for rank in (0, 1):
        assert "".join(said(block) for _, block in blocks if rank in block.ranks).splitlines() == lines
