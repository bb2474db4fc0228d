import pytest
from farandole.exceptions import UsageError
from farandole.ranks import context


def test_a_single_process_is_rank_0_of_1() -> None:
    assert (context.rank(), context.size(), context.local_rank(), context.local_size()) == (0, 1, 0, 1)
    assert (context.backend(), context.worker(), context.cluster()) == ("none", "", "")
    assert str(context.device()).startswith(("cpu", "cuda"))


def test_without_a_count_of_the_machine_its_ranks_are_those_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARANDOLE_LOCAL_SIZE", "2")
    assert context.machine_size() == 2
    monkeypatch.setenv("FARANDOLE_MACHINE_SIZE", "6")
    assert context.machine_size() == 6


def test_the_environment_identifies_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    for name, value in zip(names, "3412", strict=True):
        monkeypatch.setenv(f"FARANDOLE_{name}", value)
    monkeypatch.setenv("FARANDOLE_BACKEND", "torch")
    assert (context.rank(), context.size(), context.local_rank(), context.local_size()) == (3, 4, 1, 2)
    assert context.backend() == "torch"


@pytest.mark.parametrize(("name", "value"), [("RANK", "x"), ("BACKEND", "mpi")])
def test_a_wrong_environment_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"FARANDOLE_{name}", value)
    with pytest.raises(UsageError, match=f"FARANDOLE_{name} is '{value}'"):
        getattr(context, name.lower())()
