"""Tests of digests: equal in each process and for equal code, and different for other code and values."""

import functools
import importlib
import subprocess
import sys
import threading
from types import ModuleType

import cloudpickle
import dask
import numpy as np
import pandas as pd
import pytest
import torch
from farandole.datasets.digests import digest, frame_digest

CODE = """
import functools
import numpy as np
FACTOR = 2
def helper(x): return x * FACTOR
def stage(batch):
    return {"n": [helper(one) for one in batch["n"]]}
class Model:
    kind = "small"
    def __init__(self, size=3): self.size = size
    def __call__(self, batch): return super().__call__(batch)
"""


def run(code, filename="<cell>"):
    """Define things as a notebook does."""
    there = {"__name__": "__main__"}
    exec(compile(code, filename, "exec"), there)
    return there


def test_the_same_cell_has_the_same_digest_in_another_file_and_at_another_line():
    first, second = run(CODE), run(f"\n\n# moved\n{CODE}", "<other>")
    assert digest(first["stage"]) == digest(second["stage"])
    assert digest(first["Model"]) == digest(second["Model"])


def test_the_same_cell_has_the_same_digest_in_another_process():
    values = "[stage, Model, {'a', 'b', 'c'}, {stage, Model}]"
    code = f"{CODE}\nfrom farandole.datasets.digests import digest\nprint(digest({values}))"
    found = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in "ab"
    ]
    assert found[0] == found[1]
    assert len(found[0].strip()) == 64


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("FACTOR = 2", "FACTOR = 3", "stage"),
        ("x * FACTOR", "x + FACTOR", "stage"),
        ('{"n": [', '{"m": [', "stage"),
        ("size=3", "size=4", "Model"),
        ('"small"', '"large"', "Model"),
        ("return super().__call__(batch)", "return batch", "Model"),
    ],
)
def test_another_cell_has_another_digest(old, new, name):
    assert digest(run(CODE)[name]) != digest(run(CODE.replace(old, new))[name])


def test_a_global_that_a_function_only_has_as_an_attribute_does_not_count():
    code = "def stage(batch): return batch.unrelated\nunrelated = {}"
    assert digest(run(code.format(1))["stage"]) == digest(run(code.format(2))["stage"])


def close_over(value):
    def stage(batch):
        return batch, value

    return stage


@pytest.mark.parametrize(
    "values",
    [
        (1, 2, 1.0, "1", b"1", None, True),
        ([1], (1,), {1}, {1: 1}, [[1]]),
        (np.zeros(2), np.zeros(3), np.zeros(2, dtype="float32"), np.ones(2)),
        (torch.zeros(2), torch.ones(2)),
        (pd.Series([1]), pd.Series([2]), pd.DataFrame({"a": [1]}), pd.DataFrame({"b": [1]})),
        (np, torch, np.mean, np.sum, np.ndarray),
    ],
)
def test_values_in_closures_arguments_and_partials_count(values):
    assert len({digest(close_over(value)) for value in values}) == len(values)
    assert len({digest(functools.partial(close_over, value)) for value in values}) == len(values)
    assert [digest(close_over(value)) for value in values] == [digest(close_over(value)) for value in values]


def test_the_state_of_an_instance_counts():
    kinds = run(CODE)
    one, two = kinds["Model"](1), kinds["Model"](2)
    assert digest(one) != digest(two)
    assert digest(one) == digest(kinds["Model"](1))
    torch.manual_seed(0)
    first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    assert digest(first) != digest(second)
    second.load_state_dict(first.state_dict())
    assert digest(first) == digest(second)


PACKAGE = {
    "__init__": "",
    "settings": "FACTOR = 2",
    "layers": CODE,
    "model": "from photobox import layers\nfrom photobox.layers import Model\n"
    "def stage(batch): return layers.stage(batch)\n",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Import the modules of a package that the user may have edited."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(root=tmp_path, **edited):
        for name, code in (PACKAGE | edited).items():
            file = root / "photobox" / f"{name}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(code)
        for name in [name for name in sys.modules if name.split(".")[0] == "photobox"]:
            del sys.modules[name]
        monkeypatch.syspath_prepend(root)
        importlib.invalidate_caches()
        return importlib.import_module("photobox.model")

    yield write
    monkeypatch.undo()
    for name in [name for name in sys.modules if name.split(".")[0] == "photobox"]:
        del sys.modules[name]


USES = {
    "function": lambda model: model.stage,
    "class": lambda model: model.Model,
    "instance": lambda model: model.Model(3),
    "module": close_over,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_an_edited_module_of_the_user_counts_also_if_another_module_uses_it(package, use):
    digests = [digest(use(package(layers=code))) for code in (CODE, CODE, CODE.replace("FACTOR = 2", "FACTOR = 3"))]
    assert digests[0] == digests[1] != digests[2]


def test_an_edited_module_counts_for_its_own_functions(package):
    assert digest(package().stage) != digest(package(model=PACKAGE["model"] + "FACTOR = 4\n").stage)


def test_a_module_that_others_have_imported_does_not_count(package):
    before = digest(close_over(sys.modules[package().__package__]))
    importlib.import_module("photobox.settings")
    assert digest(close_over(sys.modules["photobox"])) == before


def test_installed_packages_count_by_their_names(package, tmp_path):
    root = tmp_path / "site-packages"
    first = digest(package(root).Model)
    assert digest(package(root, layers=f"{CODE}\n# edited").Model) == first


@pytest.fixture
def registered(package):
    """Import the modules of a package that is registered to be pickled by value."""
    photobox = ModuleType("photobox")

    def load(**edited):
        model = package(**edited)
        cloudpickle.register_pickle_by_value(sys.modules["photobox"])
        return model

    yield load
    cloudpickle.unregister_pickle_by_value(photobox)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_modules_that_are_pickled_by_value_count_by_their_code(registered, use):
    first = digest(use(registered()))
    assert digest(use(registered(layers=f"# moved\n{CODE}"))) == first
    edited = CODE.replace("return super().__call__(batch)", "return batch").replace("FACTOR = 2", "FACTOR = 3")
    assert digest(use(registered(layers=edited))) != first


def test_classes_and_members_of_a_registered_module_have_the_same_digest_in_another_process(tmp_path):
    (tmp_path / "kinds.py").write_text(
        "import dataclasses, enum\n"
        "class Kind(enum.Enum):\n    A = 1\n    B = 2\n"
        "@dataclasses.dataclass\nclass Box:\n    kind: Kind = Kind.A\n"
        "    names: list = dataclasses.field(default_factory=list)\n"
        "def stage(batch): return Box(), Kind.B\n"
    )
    code = (
        "import cloudpickle, kinds\nfrom farandole.datasets.digests import digest\n"
        "cloudpickle.register_pickle_by_value(kinds)\nprint(digest([kinds.stage, kinds.Box(), kinds.Kind.B]))"
    )
    first, second = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
        for _ in "ab"
    )
    assert first == second
    assert len(first.strip()) == 64


def test_functions_that_all_use_each_other_have_a_digest():
    names = [f"f{number}" for number in range(60)]
    code = "\n".join(f"def {name}(n): return [{', '.join(names)}]" for name in names)
    assert digest(run(code)["f0"]) == digest(run(code)["f0"])


def test_objects_that_contain_themselves_have_a_digest():
    loop = []
    loop.append(loop)
    assert digest(loop) == digest(loop)
    assert digest(run("def f(n): return f(n - 1) if n else g(n)\ndef g(n): return f(n)")["f"])


def test_tensors_of_types_that_numpy_lacks():
    digests = [digest(torch.ones(2, dtype=kind)) for kind in (torch.bfloat16, torch.float16, torch.bool)]
    assert len(set(digests)) == 3
    assert digest(torch.ones(2, dtype=torch.bfloat16)) == digests[0] != digest(torch.zeros(2, dtype=torch.bfloat16))
    assert digest(torch.tensor(1)) != digest(torch.tensor([1]))


FRAME = """
import functools
import dask.dataframe as dd
import pandas as pd
def double(part, by=2): return part.assign(m=part.n * by)
frame = dd.from_pandas(pd.DataFrame({"n": range(10)}), npartitions=3)
"""


@pytest.mark.parametrize(
    "call", ["double", "double, by=3", "functools.partial(double, by=4)", "lambda part, f: f(part), double"]
)
def test_a_frame_with_functions_of_the_notebook_is_the_same_in_a_new_kernel(call):
    code = f"{FRAME}\nfound = frame.map_partitions({call})[['m']]"
    meta = code.replace(")[['m']]", ", meta={'n': int, 'm': int})[['m']]")
    first, second = run(meta), run(f"\n\n{meta}", "<other>")
    assert frame_digest(first["found"]) == frame_digest(second["found"])
    changed = run(meta.replace("part.n * by", "part.n + by"))
    assert frame_digest(first["found"]) != frame_digest(changed["found"])


def test_a_frame_with_a_function_of_an_edited_module_is_another(package):
    frame = run(FRAME)["frame"]
    digests = []
    for code in (CODE, CODE, CODE.replace("FACTOR = 2", "FACTOR = 3")):
        stage = package(layers=code).stage
        digests.append(frame_digest(frame.map_partitions(stage, meta={"n": int})))
    assert digests[0] == digests[1] != digests[2]


def test_a_frame_in_memory_is_known_by_the_names_of_its_partitions():
    def persisted(factor):
        frame = run(FRAME)["frame"]
        with dask.config.set(scheduler="threads"):
            return frame_digest((frame * factor).persist())

    assert persisted(2) == persisted(2) != persisted(3)


def test_an_object_that_cannot_be_pickled_has_none():
    with pytest.raises(TypeError, match="pickle"):
        digest(close_over(threading.Lock()))
