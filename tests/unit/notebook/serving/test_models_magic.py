"""Tests for `%models`, and the manifest of `%serve --kserve`, in a real IPython shell with a store in a folder."""

import pytest
import yaml
from farandole import Endpoint, __version__
from farandole.exceptions import ModelNotFoundError, UsageError
from farandole.models.model import ONNX_FILE, WEIGHTS_FILE, ModelInfo, TensorInfo
from farandole.models.names import ModelName
from farandole.notebook.serving.magics import ServingMagics
from IPython.core.interactiveshell import InteractiveShell

IRIS = ModelName(model="iris")


@pytest.fixture(scope="module")
def shell():
    shell = InteractiveShell()
    yield shell
    shell.history_manager.end_session()


@pytest.fixture
def magics(shell, model_store):
    return ServingMagics(shell)


def save(model_store, *, accuracy, name=IRIS, files=(WEIGHTS_FILE, ONNX_FILE)):
    inputs = (TensorInfo(name="x", datatype="FP32", shape=(-1, 4)),)
    outputs = (TensorInfo(name="output", datatype="FP32", shape=(-1, 3)),)

    def write(folder):
        for file in files:
            (folder / file).write_bytes(b"weights")
        about = {"metrics": {"accuracy": accuracy}, "inputs": inputs, "outputs": outputs}
        return ModelInfo(name=name, version=1, folder=folder, created=1.0, **about)

    return model_store.save(name, write)


def test_without_models_the_list_says_how_to_save_one(magics):
    listed = magics.models("")
    assert repr(listed) == "no models yet; fd.save_model(model, NAME) saves one"
    assert listed._repr_html_() == "<p>no models yet; fd.save_model(model, NAME) saves one</p>"


def test_versions_are_listed_with_their_metrics_and_inputs(model_store, magics, set_zone):
    set_zone("UTC")
    save(model_store, accuracy=0.5)
    save(model_store, accuracy=0.75, name=ModelName(model="other"))
    [head, *rows] = repr(magics.models("list iris")).splitlines()
    assert head.split() == ["model", "saved", "metrics", "inputs", "outputs", "size", "run"]
    [row] = rows
    assert row.startswith("iris:1")
    assert "accuracy=0.5" in row
    assert "x: FP32 [-1, 4]" in row
    assert len(repr(magics.models("")).splitlines()) == 3


def test_versions_are_compared_by_what_differs(model_store, magics):
    for accuracy in (0.5, 0.75):
        save(model_store, accuracy=accuracy)
    compared = magics.models("compare iris")
    assert compared.head == ("", "iris:1", "iris:2")
    assert ("accuracy", "0.5", "0.75") in compared.rows
    assert repr(magics.models("compare iris:1 iris:2")) == repr(compared)


def test_a_version_is_removed_and_the_others_stay(model_store, magics, capsys):
    for accuracy in (0.5, 0.75):
        save(model_store, accuracy=accuracy)
    magics.models("remove iris:1")
    assert capsys.readouterr().out == "iris:1 is removed\n"
    assert [str(info) for info in model_store.list()] == ["iris:2"]


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("compare", UsageError, "needs versions, such as `%models compare iris:2 iris:3`"),
        ("remove", UsageError, "needs a version, such as `%models remove iris:2`"),
        ("remove iris", ModelNotFoundError, "iris:1"),
        ("list flowers", ModelNotFoundError, "there is no model 'flowers'"),
        ("remve iris:1", UsageError, "remove"),
    ],
)
def test_a_wrong_line_is_answered_with_the_remedy(model_store, magics, line, error, message):
    save(model_store, accuracy=0.5)
    with pytest.raises(error) as caught:
        magics.models(line)
    assert message in str(caught.value)
    assert len(model_store.list()) == 1


def test_variables_of_the_notebook_are_replaced_except_in_commands(model_store, magics, monkeypatch, capsys):
    started = []

    def start(model, **options):
        started.append(options["command"])
        raise UsageError("started")

    monkeypatch.setattr(Endpoint, "start", start)
    magics.shell.register_magics(magics)
    magics.shell.user_ns |= {"port": 8000, "version": 1, "line": 2}
    with pytest.raises(UsageError, match="started"):
        magics.shell.run_line_magic("serve", '--command "app --port {port}" --name app')
    assert started == [["app", "--port", "{port}"]]
    save(model_store, accuracy=0.5)
    magics.shell.run_line_magic("serve", "iris:{version} --kserve")
    assert "farandole/model: iris:1" in capsys.readouterr().out


@pytest.mark.parametrize(("files", "variant"), [((WEIGHTS_FILE, ONNX_FILE), ""), ((WEIGHTS_FILE,), "-torch")])
def test_the_manifest_serves_the_version_without_a_login_from_a_claim(model_store, magics, capsys, files, variant):
    save(model_store, accuracy=0.5, files=files)
    magics.serve("iris:latest --kserve")
    manifest = yaml.safe_load(capsys.readouterr().out)
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("InferenceService", "iris")
    [container] = manifest["spec"]["predictor"]["containers"]
    assert container["command"][-2:] == ["--no-login", "iris:1"]
    assert container["image"] == f"farandole-serving:{__version__}{variant}"
    [mount] = container["volumeMounts"]
    assert {"name": "FARANDOLE_MODELS", "value": mount["mountPath"]} in container["env"]


def test_the_inference_service_has_the_name_that_is_given(model_store, magics, capsys):
    save(model_store, accuracy=0.5, name=ModelName(model="3d-net"))
    magics.serve("3d-net --kserve --name net-3d")
    manifest = yaml.safe_load(capsys.readouterr().out)
    assert manifest["metadata"]["name"] == "net-3d"
    [container] = manifest["spec"]["predictor"]["containers"]
    assert container["command"][-1] == "3d-net:1"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("", "3d-net"),
        ("--name 4d", "4d"),
        ("--name Net", "Net"),
        ("--name net-", "net-"),
        (f"--name {'n' * 25}", "n" * 25),
    ],
)
def test_other_names_are_no_names_of_inference_services(model_store, magics, capsys, options, name):
    save(model_store, accuracy=0.5, name=ModelName(model="3d-net"))
    with pytest.raises(UsageError) as caught:
        magics.serve(f"3d-net --kserve {options}")
    assert str(caught.value) == (
        f"{name!r} cannot be the name of an InferenceService: it begins with a letter, and has 1 to 24 lower-case "
        "letters, digits and inner hyphens; give another one with `--name`"
    )
    assert capsys.readouterr().out == ""
