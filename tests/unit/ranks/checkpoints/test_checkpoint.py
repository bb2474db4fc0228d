"""Checkpoints on disk are complete or absent. Damaged checkpoints are skipped, and full or slow disks cause notices."""

import errno
import json
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from farandole import checkpoint
from farandole import state as make_state
from farandole.exceptions import UsageError
from farandole.ranks import run
from farandole.ranks.checkpoints import files
from farandole.ranks.checkpoints.checkpoint import Checkpoints, set_random_numbers
from farandole.ranks.metrics import reporter
from farandole.ranks.run import LoadedCheckpoint
from farandole.ranks.state.snapshot import copied
from farandole.ranks.state.state import State
from farandole.ranks.training.prepare import prepare
from farandole.runs.checkpoints.found import checkpoints_of
from farandole.runs.checkpoints.intact import DamagedError, described
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEADLINE = 60


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    # The next test resets the warning filters. A checkpoint that is still being written would then fail.
    for thread in threading.enumerate():
        if thread.name == "farandole-checkpoint":
            thread.join(DEADLINE)
            assert not thread.is_alive()


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    messages: list[str] = []
    monkeypatch.setattr(run, "notice", lambda text, **_: messages.append(text))
    return messages


def _training() -> State:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    data = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
    model, optimizer, loader = prepare(model, optimizer, DataLoader(data, 4, shuffle=True))
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
    scaler = torch.amp.GradScaler("cpu")
    return make_state(model, optimizer, loader, scheduler, scaler, epoch=0, step=0, note="a")


def _losses(state: State, steps: int) -> list[float]:
    """Train with random noise from every generator, commit after each step, and return the losses."""
    losses: list[float] = []
    for epoch in range(state.epoch, 9):
        state.epoch = epoch
        for x, y in state.loader:
            noise = random.random() + float(np.random.random()) + torch.rand(1)
            loss = nn.functional.mse_loss(state.model(x + 0.1 * noise), y)
            state.optimizer.zero_grad()
            loss.backward()
            state.optimizer.step()
            state.scheduler.step()
            state.step += 1
            losses.append(loss.item())
            state.commit()
            if len(losses) == steps:
                return losses
    return losses


def _steps(folder: Path) -> list[int]:
    return sorted(int(place.name.removeprefix("step-")) for place in files.checkpoint_paths(folder))


def _names(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def test_a_resumed_loop_has_the_losses_of_an_uninterrupted_one(tmp_path: Path) -> None:
    expected = _losses(_training(), 23)
    first = _training()
    made = checkpoint(first, every=7, folder="c")
    first.on_commit(lambda _state: made.wait())
    assert _losses(first, 15) == expected[:15]
    second = _training()
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(99)
    assert checkpoint(second, every=7, folder="d", resume="c").resumed == 14
    assert (second.step, second.epoch, second.commits, second.note) == (14, 1, 14, "a")
    assert _losses(second, 9) == expected[14:]


def test_the_newest_checkpoints_are_kept_and_the_oldest_removed(tmp_path: Path) -> None:
    state = make_state(nn.Linear(2, 2), step=0)
    made = checkpoint(state, every=2, keep=2)
    for step in range(1, 12):
        state.step = step
        state.commit()
        made.wait()
    found = checkpoints_of(tmp_path)
    assert [one.step for one in found] == [8, 10]
    assert [one.path for one in found] == [tmp_path / "checkpoints" / f"step-{step}" for step in (8, 10)]
    assert all(one.bytes > 0 and abs(one.time - time.time()) < 600 for one in found)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir() if path.name.startswith(".")] == []


def test_the_newest_checkpoint_is_kept_even_if_the_clock_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    state = make_state(nn.Linear(2, 2), step=0)
    made = checkpoint(state, every=1, keep=1, folder="c")
    now = time.time()
    for step, clock in ((1, now), (2, now - 300)):
        monkeypatch.setattr(time, "time", lambda clock=clock: clock)
        state.step = step
        state.commit()
        made.wait()
    assert _steps(Path("c")) == [2]


def test_save_writes_immediately_and_counts_commits_without_a_step() -> None:
    state = make_state(nn.Linear(2, 2))
    made = checkpoint(state, every="1h", folder="c")
    state.commit()
    made.save()
    assert _steps(Path("c")) == [2]


def test_an_interval_of_time_is_checked_at_few_commits() -> None:
    state = make_state(step=0)
    made = checkpoint(state, every="0.2s", folder="c", keep=50)
    patience = time.monotonic() + DEADLINE
    while len(_steps(Path("c"))) < 3 and time.monotonic() < patience:
        state.step += 1
        state.commit()
        time.sleep(0.001)
    made.wait()
    steps = _steps(Path("c"))
    assert len(steps) >= 3
    assert state.commits > len(steps)


@pytest.mark.parametrize("every", [0, -1, True, 1.5, "", "5", "5 days", "0s", None])
def test_a_wrong_every_is_refused(every: Any) -> None:
    with pytest.raises(UsageError, match=r"every is .*every=100.*every='5min'"):
        checkpoint(make_state(), every=every)


def test_a_wrong_keep_is_refused() -> None:
    with pytest.raises(UsageError, match="keep is 0; it must be a whole number of at least 1"):
        checkpoint(make_state(), keep=0)


def _three(folder: str = "c") -> State:
    state = make_state(nn.Linear(3, 3), step=0)
    made = checkpoint(state, every=1, folder=folder, keep=3)
    for step in (1, 2, 3):
        state.step = step
        state.model.weight.data.fill_(step)
        state.commit()
        made.wait()
    return state


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _swap_for_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _use_a_missing_module(place: Path) -> None:
    (place / "outline.pickle").write_bytes(b"cno_such_module\nThing\n.")
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["files"]["outline.pickle"] = described(place / "outline.pickle")
    (place / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda place: _flip(next(place.glob("*.distcp"))), "distcp has changed since it was written"),
        (lambda place: _flip(place / ".metadata"), ".metadata has changed since it was written"),
        (lambda place: _flip(place / "outline.pickle"), "outline.pickle has changed since it was written"),
        (lambda place: (place / "outline.pickle").unlink(), "outline.pickle is missing"),
        (lambda place: (place / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda place: (place / "manifest.json").write_text("{"), "manifest.json cannot be read"),
        (lambda place: (place / "manifest.json").write_text("[]"), "manifest.json cannot be read"),
        (lambda place: (place / "manifest.json").write_bytes(b"\xff"), "manifest.json cannot be read"),
        (
            lambda place: _swap_for_a_folder(place / "outline.pickle"),
            "'outline.pickle' is not a regular file",
        ),
        (
            _use_a_missing_module,
            "outline.pickle cannot be unpickled here: No module named 'no_such",
        ),
    ],
    ids=["tensors", "metadata", "outline", "no-outline", "no-manifest", "torn", "list", "no-text", "folder", "module"],
)
def test_a_damaged_checkpoint_is_skipped_and_named(notices: list[str], damage: Any, says: str) -> None:
    _three()
    damage(Path("c/step-3"))
    state = make_state(nn.Linear(3, 3), step=0)
    assert checkpoint(state, resume="c", folder="d").resumed == 2
    assert (state.step, state.model.weight.mean().item()) == (2, 2)
    assert "the checkpoint c/step-3 is damaged and ignored: " in notices[0]
    assert says in notices[0]
    assert notices[1:] == ["resumed from step 2, c, written by 1 ranks"]


def test_nothing_is_resumed_without_an_undamaged_checkpoint(notices: list[str]) -> None:
    _three()
    for place in Path("c").iterdir():
        (place / "manifest.json").unlink()
    for source in ("c", "nowhere"):
        with pytest.raises(UsageError, match=f"{source} has no intact checkpoint to resume from"):
            checkpoint(make_state(nn.Linear(3, 3), step=0), resume=source)
    assert len(notices) == 3


def test_a_later_training_in_the_same_folder_counts_as_newer() -> None:
    _three()
    state = make_state(nn.Linear(3, 3), step=0)
    made = checkpoint(state, every=1, folder="c", keep=2)
    for _ in range(2):
        state.step += 1
        state.commit()
        made.wait()
    assert _steps(Path("c")) == [1, 2]
    assert checkpoint(make_state(nn.Linear(3, 3), step=0), resume="c", folder="d").resumed == 2


WRITE_FOR_EVER = """
import torch, farandole as fd
state = fd.state(torch.nn.Linear(1500, 1500), step=0)
made = fd.checkpoint(state, every=1, keep=2, folder="c")
while True:
    state.step += 1
    state.model.weight.data.fill_(state.step)
    state.commit()
    made.wait()
    print(state.step, flush=True)
"""


def test_a_kill_during_a_write_leaves_the_previous_checkpoint_complete(notices: list[str]) -> None:
    delays = random.Random(5)
    for _ in range(3):
        before = max(_steps(Path("c")), default=0)
        child = subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        try:
            written = [int(child.stdout.readline()) for _ in range(2)]
            time.sleep(delays.random() * 0.2)
        finally:
            child.send_signal(signal.SIGKILL)
            rest, _ = child.communicate(timeout=DEADLINE)
        last = max([*written, *map(int, rest.split())])
        state = make_state(nn.Linear(1500, 1500), step=0)
        found = checkpoint(state, resume="c", folder="unused").resumed
        # The writer may have finished another step without printing its number.
        assert found in {last, last + 1}
        assert state.model.weight.unique().tolist() == [found]
        assert before == 0 or _steps(Path("c"))
    assert [text for text in notices if "resumed" not in text] == []


def test_files_of_a_killed_writer_are_removed_or_restored() -> None:
    _three()
    Path("c/step-3").rename("c/.step-3.old")  # as if the writer had been killed between the two renames
    Path("c/.step-3.new").mkdir()
    Path("c/step-1").rename("c/.step-1.gone")
    found = checkpoint(make_state(nn.Linear(3, 3), step=0), resume="c", folder="unused").resumed
    assert (found, [one.name for one in files.checkpoint_paths(Path("c"))]) == (3, [".step-3.old", "step-2"])
    files.tidy(Path("c"))
    assert sorted(path.name for path in Path("c").iterdir()) == ["step-2", "step-3"]
    assert files.read(Path("c/step-3")).step == 3


def test_a_full_disk_is_reported_and_retried(notices: list[str], tmp_path: Path) -> None:
    state = make_state(nn.Linear(200, 200), step=1)
    made = checkpoint(state, every=1, folder="c")
    made.save()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        for _ in range(3):
            state.step = 2
            state.commit()
            made.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert _steps(Path("c")) == [1]
    assert _names("c") == ["step-1"]
    [notice] = notices
    assert f"checkpoint of step 2 could not be written to {tmp_path / 'c'}: File too large; " in notice
    assert "the training continues" in notice
    state.step = 3
    state.commit()
    made.wait()
    assert _steps(Path("c")) == [1, 3]
    assert len(notices) == 1
    _fail_once(made, state, notices)


def _fail_once(made: Checkpoints, state: State, notices: list[str]) -> None:
    """Make a write fail after a successful write, and check that the failure is reported again."""
    made.folder.rename("elsewhere")
    made.folder.touch()
    state.commit()
    made.wait()
    assert len(notices) == 2


def test_lost_connections_are_reported_only_if_the_training_continues(
    notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(folder: Path, content: files.Content) -> Path:
        raise ConnectionResetError(errno.ECONNRESET, "the ranks have lost their connections")

    monkeypatch.setattr(files, "write", cut)
    made = checkpoint(make_state(nn.Linear(2, 2), step=1), every=1, folder="c")
    made.save()
    assert notices == []
    made.save()
    assert "could not be written" in notices[0]
    assert "the ranks have lost their connections" in notices[0]


def test_a_checkpoint_of_another_model_is_refused() -> None:
    _three()
    for model in (nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 3))):
        with pytest.raises(UsageError, match=r"another model: Error.* loading state_dict .* create the same model"):
            checkpoint(make_state(model, step=0), resume="c", folder="d")


def test_a_state_that_cannot_be_pickled_is_reported(notices: list[str]) -> None:
    class Odd:
        def state_dict(self) -> dict[str, Any]:
            return {"lock": Unpicklable()}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            raise NotImplementedError

    state = make_state(odd=Odd())
    made = checkpoint(state, every=1, folder="c")
    state.commit()
    made.wait()
    assert "the state cannot be pickled: not this one" in notices[0]
    assert _names("c") == []


class Unpicklable:
    """An object that can be copied but not pickled."""

    def __deepcopy__(self, _memo: object) -> "Unpicklable":
        return self

    def __reduce__(self) -> Any:
        raise TypeError("not this one")


def test_a_slow_disk_queues_no_writes_and_the_written_copy_does_not_change(
    notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, writes = threading.Event(), []
    write = files.write

    def slowly(folder: Path, content: files.Content) -> Path:
        before = copied(content.state["parts"]["model"]["weight"])
        assert may_go_on.wait(DEADLINE)
        writes.append((content.step, torch.equal(before, content.state["parts"]["model"]["weight"])))
        return write(folder, content)

    monkeypatch.setattr(files, "write", slowly)
    state = make_state(nn.Linear(2, 2), step=0)
    made = checkpoint(state, every=1, folder="c")
    for step in range(1, 6):
        state.step = step
        state.model.weight.data.fill_(step)
        state.commit()
    may_go_on.set()
    made.wait()
    assert writes == [(1, True)]
    assert len([text for text in notices if "is slow" in text]) == 1
    state.step = 9
    state.commit()
    made.wait()
    assert _steps(Path("c")) == [1, 9]


def test_save_writes_nothing_beside_a_write_that_does_not_end(
    notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[files.Content] = []
    released = threading.Event()
    write = files.write

    def stuck(folder: Path, content: files.Content) -> Path:
        writes.append(content)
        assert released.wait(DEADLINE)
        return write(folder, content)

    monkeypatch.setattr(files, "write", stuck)
    monkeypatch.setattr(Checkpoints.wait, "__defaults__", (0.1,))
    state = make_state(nn.Linear(2, 2), step=0)
    made = checkpoint(state, every=1, folder="c")
    state.commit()
    made.save()
    released.set()
    made.wait(DEADLINE)
    assert len(writes) == 1
    assert [text for text in notices if "still being written" in text and "after 0.1 s" in text]


def test_a_new_rank_gets_its_own_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    _three()
    drawn = []
    for rank in (0, 1, 2, 1, 0):
        monkeypatch.setenv("FARANDOLE_RANK", str(rank))
        content = files.read(Path("c/step-3"))
        set_random_numbers(content.seed, content.rngs, rank)
        drawn.append((random.random(), float(np.random.random()), float(torch.rand(1))))
    assert (drawn[0], drawn[1]) == (drawn[4], drawn[3])
    assert len({number for numbers in drawn[:3] for number in numbers}) == 9


def test_a_runs_checkpoints_are_in_its_folder_and_its_end_waits_for_them(tmp_path: Path) -> None:
    run.current().begin(str(tmp_path / "run"), "")
    try:
        state = make_state(nn.Linear(500, 500), step=0)
        checkpoint(state, every=1)
        state.step = 5
        state.commit()
    finally:
        run.current().end()
    assert [one.step for one in checkpoints_of(tmp_path / "run")] == [5]


def test_a_link_in_a_runs_folder_removes_no_checkpoints_elsewhere(notices: list[str], tmp_path: Path) -> None:
    """In a store that a group shares, another user may have made the link, for example to another run."""
    _three("other")
    before = _names("other")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "other")
    run.current().begin(str(tmp_path / "run"), "")
    try:
        checkpoint(make_state(nn.Linear(3, 3), step=0), every=1, keep=1).save()
    finally:
        run.current().end()
    assert _names("other") == before
    assert "the folder is a symbolic link" in notices[0]


def test_the_user_may_choose_a_folder_that_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    checkpoint(make_state(nn.Linear(3, 3), step=4), every=1, folder="link").save()
    assert _steps(tmp_path / "disk") == [4]


def test_a_tilde_in_a_folder_stands_for_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    checkpoint(make_state(nn.Linear(3, 3), step=4), every=1, folder="~/kept").save()
    assert _steps(tmp_path / "kept") == [4]
    assert checkpoint(make_state(nn.Linear(3, 3), step=0), resume="~/kept").resumed == 4


def test_a_run_reports_that_it_did_not_resume(notices: list[str], tmp_path: Path) -> None:
    _three(str(tmp_path / "old" / "checkpoints"))
    run.current().begin(str(tmp_path / "new"), str(tmp_path / "old"))
    run.current().end()
    assert notices == ["the cell did not call fd.checkpoint(state), so nothing was resumed; call it before the loop"]
    run.current().begin(str(tmp_path / "new"), str(tmp_path / "old"))
    state = make_state(nn.Linear(3, 3), step=0)
    assert checkpoint(state).resumed == 3
    run.current().end()
    assert notices[1:] == ["resumed from step 3, old, written by 1 ranks"]


def test_a_new_rank_reads_the_checkpoint_that_the_run_resumed_from(
    notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _three()
    for name, value in {"RANK": "1", "SIZE": "3", "OUTSIDE": "1", "BACKEND": "torch"}.items():
        monkeypatch.setenv(f"FARANDOLE_{name}", value)
    state = make_state(nn.Linear(3, 3), step=0)
    assert checkpoint(state, resume="c", folder="d").resumed == 3
    assert state.model.weight.unique().tolist() == [3]
    assert notices == []


def test_catching_up_uses_the_newest_complete_checkpoint_of_this_run(
    notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter.current(), "run", "mine")
    advanced = _three()
    monkeypatch.setattr(reporter.current(), "run", "another")
    assert _caught_up() == (None, 0)
    monkeypatch.setattr(reporter.current(), "run", "mine")
    assert _caught_up() == (LoadedCheckpoint(step=3, ranks=1), 3)
    _flip(Path("c/step-3/outline.pickle"))
    assert _caught_up() == (LoadedCheckpoint(step=2, ranks=1), 2)
    assert checkpoint(advanced, folder="c").catch_up() is None
    assert [text for text in notices if "step-3 is damaged" in text]


def _caught_up() -> tuple[LoadedCheckpoint | None, int]:
    state = make_state(nn.Linear(3, 3), step=0)
    caught = checkpoint(state, folder="c").catch_up()
    weight = state.model.weight.unique().tolist()
    return caught, int(weight[0]) if len(weight) == 1 else 0


def test_a_checkpoint_removed_during_a_read_is_not_reported_as_damaged(
    notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _three()
    verified = files.verified

    def remove_once_it_is_verified(place: Path, **share: int) -> dict[str, Any]:
        manifest = verified(place, **share)
        if place.name == "step-3":
            files.remove(place)
        return manifest

    monkeypatch.setattr(files, "verified", remove_once_it_is_verified)
    assert checkpoint(make_state(nn.Linear(3, 3), step=0), resume="c", folder="d").resumed == 2
    assert [text for text in notices if "damaged" in text] == []


def test_a_new_rank_does_not_need_the_checkpoint_that_the_run_resumed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    state = _training()
    monkeypatch.setenv("FARANDOLE_OUTSIDE", "1")
    made = checkpoint(state, resume=tmp_path / "gone")
    assert (made.resumed, state.commits) == (None, 0)
    gone = f"{tmp_path / 'gone'} no longer has an intact checkpoint"
    assert notices == [f"{gone}; a new rank gets the state of the other ranks"]
    monkeypatch.setenv("FARANDOLE_OUTSIDE", "")
    with pytest.raises(UsageError, match="gone has no intact checkpoint to resume from"):
        checkpoint(state, resume=tmp_path / "gone")


def test_all_steps_at_the_end_of_a_run_are_done_even_if_one_fails() -> None:
    done: list[str] = []
    run.current().begin("", "")
    run.current().at_end(lambda: done.append("first"))
    run.current().at_end(lambda: [].remove(1))
    run.current().at_end(lambda: done.append("last"))
    with pytest.raises(ValueError, match="not in list"):
        run.current().end()
    assert done == ["first", "last"]


def test_reading_a_wrong_path_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match=r"manifest\.json is missing"):
        files.read(tmp_path)
