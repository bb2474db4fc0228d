"""Script for one rank in the contract test of checkpoints of a sharded model. It trains, and saves the whole model."""

import json
import sys
from pathlib import Path
from typing import Any

import farandole as fd
import torch
from farandole.ranks.world import collectives
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.contract.mesh_on_ranks import WORDS, Model, plan, whole
from tests.contract.train_on_ranks import end_process, form_world, leave_world

SAVED, STEPS = 3, 7
"""The step of the checkpoint, which is in the middle of an epoch, and the last step."""


def options(mesh: dict[str, int] | None) -> dict[str, Any]:
    """Return the arguments of fd.prepare for a mesh, or for none."""
    how: dict[str, Any] = {} if mesh is None else {"mesh": mesh}
    if mesh is not None and "tensor" in mesh:
        how["plan"] = plan()
    return how


def share(mesh: dict[str, int] | None) -> int:
    return fd.rank() // (mesh or {}).get("tensor", 1)


def train(mesh: dict[str, int] | None, folder: Path, resume: str, last: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    model = Model().double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    samples = torch.randint(WORDS, (70, 6), generator=torch.Generator().manual_seed(7))
    loader = DataLoader(TensorDataset(samples), batch_size=16, shuffle=True)
    model, optimizer, loader = fd.prepare(model, optimizer, loader, **options(mesh))
    loops = [group["foreach"] for group in optimizer.param_groups]
    torch.manual_seed(share(mesh))
    state = fd.state(model, optimizer, loader, step=0)
    checkpoints = fd.checkpoint(state, every=SAVED, folder=folder / "own", resume=folder / resume if resume else None)
    assert checkpoints.resumed == (SAVED if resume else None)
    assert [group["foreach"] for group in optimizer.param_groups] == loops
    check_random_numbers(mesh)
    while state.step < last:
        for (batch,) in loader:
            step(model, optimizer, batch)
            state.step += 1
            state.commit()
            if state.step == last:
                break
    checkpoints.wait()
    return rolled_back(model, optimizer, state, samples)


def check_random_numbers(mesh: dict[str, int] | None) -> None:
    """Ranks with the same share of the batch have the same random numbers, and others have others."""
    before = torch.get_rng_state()
    own = json.dumps([share(mesh), torch.rand(3).tolist()]).encode()
    torch.set_rng_state(before)
    found = [json.loads(one) for one in collectives.gather_bytes(own)]
    assert len({str(one) for one in found}) == len({str(numbers) for _, numbers in found}) == len(dict(found))
    # These are the numbers of the first rank that wrote the checkpoint.
    assert found[0][1] == torch.rand(3, generator=torch.Generator().manual_seed(0)).tolist()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()).backward()
    optimizer.step()


def rolled_back(model: nn.Module, optimizer: Any, state: Any, samples: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the whole model, to which the state returns from a further step."""
    found = {name: whole(value).clone() for name, value in model.state_dict().items()}
    step(model, optimizer, samples[:4])
    assert any(not torch.equal(whole(value), found[name]) for name, value in model.state_dict().items())
    state.restore()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(whole(value), found[name], rtol=0, atol=0)
    return found


def load_weights(mesh: dict[str, int], values: dict[str, torch.Tensor], folder: Path) -> None:
    """Load models that are made without memory from files that have these values."""
    stored = {name: value for name, value in values.items() if name != "head.weight"}  # a tied parameter
    if fd.rank() == 0:
        write(stored, folder)
    collectives.gather_bytes(b"")  # the other ranks wait
    for early in (True, False):
        with fd.deferred():
            model = Model().double()
        if early:
            assert fd.load_weights(model, folder) == ([], [])
        model, _, _ = fd.prepare(model, **options(mesh))
        if not early:
            assert fd.load_weights(model, folder) == ([], [])
        for name, value in model.state_dict().items():
            torch.testing.assert_close(whole(value), values[name], rtol=0, atol=0)
    last = fd.size() - 1
    refuses(model, folder if fd.rank() < last else folder / "nowhere", "nowhere cannot be read", f"(on rank {last})")
    refuses(model, folder / "a.safetensors", "has no ")


def refuses(model: nn.Module, path: Path, *says: str) -> None:
    try:
        fd.load_weights(model, path)
    except ValueError as error:
        assert all(part in str(error) for part in says), error  # noqa: PT017
    else:
        raise AssertionError("a wrong file was accepted")


def write(stored: dict[str, torch.Tensor], folder: Path) -> None:
    """Write tensors to two files and their index."""
    folder.mkdir()
    names = {name: f"{'ab'[number % 2]}.safetensors" for number, name in enumerate(stored)}
    for file in set(names.values()):
        save_file({name: stored[name] for name in stored if names[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def main(folder: Path, mesh: dict[str, int] | None, resume: str, last: int) -> None:
    torch.set_num_threads(1)
    form_world()
    found = train(mesh, folder, resume, last)
    torch.save(found, folder / f"model.{fd.size()}.{fd.rank()}.pt")
    if mesh is not None:
        load_weights(mesh, found, folder / "weights")
    leave_world()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    end_process()
