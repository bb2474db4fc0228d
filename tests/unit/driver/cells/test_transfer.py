import platform
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
from farandole.driver.cells.transfer import Pulls
from farandole.exceptions import TransferError
from farandole.ranks.kernel import transfer
from farandole.ranks.metrics import reporter
from IPython.core.interactiveshell import InteractiveShell

PYTHON = platform.python_version()
OTHER = "3.99.1"


@pytest.fixture
def namespace() -> Iterator[dict[str, Any]]:
    shell = InteractiveShell.instance()
    yield shell.user_ns
    InteractiveShell.clear_instance()


def _push(key: str, **values: Any) -> None:
    message = {"content": {"data": {"key": key}}, "buffers": [memoryview(cloudpickle.dumps(values))]}
    transfer._on_open(None, message)


def test_pushed_values_reach_the_namespace(namespace: dict[str, Any]) -> None:
    _push("k", x=[1, 2], f=lambda: 3)
    transfer.accept("k", PYTHON)
    assert (namespace["x"], namespace["f"]()) == ([1, 2], 3)
    with pytest.raises(TransferError, match=r"Rank 0 has not received"):
        transfer.accept("k", PYTHON)


def test_only_the_named_values_are_bound(namespace: dict[str, Any]) -> None:
    _push("k", y=1, z=2)
    transfer.accept_broadcast("k", PYTHON, ["y"])
    assert namespace["y"] == 1
    assert "z" not in namespace


def test_a_value_that_cannot_be_unpickled_names_rank_and_remedy(namespace: dict[str, Any]) -> None:
    transfer.receive_buffer().put("k", b"cno_such_module\nThing\n.")
    with pytest.raises(TransferError, match=r"Rank 0 cannot unpickle 'model'.*no_such_module.*importable"):
        transfer.accept("k", PYTHON, ["model"])


def test_give_sends_one_pickle(namespace: dict[str, Any]) -> None:
    sent: list[Any] = []
    reporter.current().connect(lambda data, buffers=None: sent.append((data, buffers)))
    namespace["accuracy"] = 0.9
    transfer.give(["accuracy"])
    reporter.current().close()
    reporter.current.cache_clear()
    ((data, buffers),) = sent
    assert data["records"] == [{"kind": "value", "rank": 0, "names": ["accuracy"], "python": PYTHON}]
    assert cloudpickle.loads(buffers[0]) == {"accuracy": 0.9}


def test_a_missing_name_suggests_similar_ones(namespace: dict[str, Any]) -> None:
    namespace["accuracy"] = 0.9
    with pytest.raises(TransferError, match=r"Rank 0 has no variable 'acuracy'. Did you mean 'accuracy'\?"):
        transfer.give(["acuracy"])


def test_an_unpicklable_value_names_the_remedy(namespace: dict[str, Any]) -> None:
    namespace["items"] = (item for item in [1])
    with pytest.raises(TransferError, match=r"Rank 0 cannot pickle 'items'.*Pull the data instead"):
        transfer.give(["items"])


def test_without_a_kernel_there_is_an_error() -> None:
    with pytest.raises(TransferError, match="no kernel"):
        transfer.give(["x"])


class Model:
    pass


@pytest.mark.parametrize("value", [lambda: 3, type("Net", (), {"forward": lambda self: 1})], ids=["function", "class"])
def test_code_of_another_python_is_refused_before_it_is_unpickled(namespace: dict[str, Any], value: Any) -> None:
    names = f"functions and classes of Python {OTHER} do not run on Python {PYTHON}"
    _push("k", f=value)
    with pytest.raises(TransferError, match=f"Rank 0 cannot use the pushed values: {names}. Push only data"):
        transfer.accept("k", OTHER)
    assert "f" not in namespace
    pulls = Pulls()
    pulls.put(2, cloudpickle.dumps({"f": value}), OTHER)
    with pytest.raises(TransferError, match=f"f of rank 2 cannot be used here: {names}. Pull only data"):
        pulls._unpack(2, ["f"])


def test_data_and_code_of_the_same_minor_version_are_accepted(namespace: dict[str, Any]) -> None:
    _push("k", x=[1, 2], model=Model())
    transfer.accept("k", OTHER)
    assert namespace["x"] == [1, 2]
    _push("k", f=lambda: 3)
    transfer.accept("k", ".".join([*PYTHON.split(".")[:2], "99"]))
    assert namespace["f"]() == 3
