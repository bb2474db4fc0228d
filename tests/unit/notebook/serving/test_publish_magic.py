"""Tests for `%models publish`, in a real IPython shell and with a real registry."""

import pytest
from farandole.exceptions import UsageError
from farandole.models.model import TensorInfo
from farandole.notebook.serving.magics import ServingMagics
from IPython.core.interactiveshell import InteractiveShell

from tests.models import save_small
from tests.registry import BASE

INPUTS = (TensorInfo(name="x", datatype="FP32", shape=(-1, 4)),)


@pytest.fixture
def publish(model_store):
    save_small(model_store, inputs=INPUTS)
    shell = InteractiveShell()
    yield lambda line: ServingMagics(shell).models(f"publish {line}")
    shell.history_manager.end_session()


def test_a_version_is_published_with_the_serving_image_of_the_hub(registry, publish, capsys, monkeypatch):
    monkeypatch.setenv("FARANDOLE_SERVING_IMAGE", f"{registry.host}/{BASE}")
    publish(f"iris:1 --to {registry.host}/lab/iris")
    name = f"iris:1 is published as {registry.host}/lab/iris:1@sha256:"
    said = capsys.readouterr().out
    assert said.startswith(name)
    assert said.endswith("KiB were sent)\n")
    publish(f"iris --to {registry.host}/lab/iris:1 --base {registry.host}/{BASE}")
    assert capsys.readouterr().out.endswith("(it was there already)\n")


def test_a_version_is_written_to_a_file(registry, publish, capsys, tmp_path):
    publish(f"iris:1 --file '{tmp_path}/iris 1.tar' --base {registry.host}/{BASE}")
    assert capsys.readouterr().out.endswith("; `docker load --input 'iris 1.tar'` loads it\n")
    publish(f"iris:1 --file {tmp_path}/iris-1.tar --base {registry.host}/{BASE}")
    size = (tmp_path / "iris-1.tar").stat().st_size // 1024
    said = capsys.readouterr().out
    assert said.startswith(f"iris:1 is in {tmp_path}/iris-1.tar (")
    assert said.endswith("; `docker load --input iris-1.tar` loads it\n")
    assert size > 0


def test_the_password_is_asked_for(registry, publish, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("farandole.notebook.serving.magics.getpass", lambda prompt: asked.append(prompt) or "secret")
    publish(f"iris:1 --to {registry.host}/lab/asked --base {registry.host}/{BASE} --user ada")
    publish(f"iris:1 --file {tmp_path}/iris.tar --base {registry.host}/{BASE} --user ada")
    assert asked == 2 * [f"Password of ada at {registry.host}: "]
    with pytest.raises(UsageError, match="'Lab/iris' does not name an image in a registry"):
        publish(f"iris:1 --to Lab/iris --base {registry.host}/{BASE} --user ada")
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", r"`%models publish` needs a version, such as `%models publish iris:2`"),
        ("iris:1", r"needs one version, and either `--to IMAGE` or `--file FILE`"),
        ("iris:1 --to a.b/c --file d", r"needs one version, and either `--to IMAGE` or `--file FILE`"),
        ("iris:1 --to lab/iris", r"'lab/iris' does not name an image in a registry"),
        (f"iris:1 --to a.b/c@sha256:{'0' * 64}", r"^a\.b/c@sha256:0+ has a digest, .* leave out @sha256:0+$"),
        ("iris:1 --to localhost:5000/Lab/iris", r"'localhost:5000/Lab/iris' does not name an image in a registry"),
        ("iris:1 --file x.tar", r"the serving image is not known, because FARANDOLE_SERVING_IMAGE is not set here"),
    ],
)
def test_wrong_arguments_are_refused_with_a_remedy(publish, line, message, monkeypatch):
    monkeypatch.delenv("FARANDOLE_SERVING_IMAGE", raising=False)
    with pytest.raises(UsageError, match=message):
        publish(line if "--to" not in line or "--file" in line else f"{line} --base localhost:1/base")


def test_a_serving_image_that_is_only_on_the_engine_is_refused(publish, monkeypatch):
    monkeypatch.setenv("FARANDOLE_SERVING_IMAGE", "farandole-serving:0.1.0")
    with pytest.raises(
        UsageError, match=r"FARANDOLE_SERVING_IMAGE is farandole-serving:0.1.0, which is in no registry"
    ):
        publish("iris:1 --to localhost:5000/lab/iris")


def test_options_of_other_actions_are_refused(publish):
    with pytest.raises(UsageError, match=r"^`%models list` has no option --to; it has none$"):
        ServingMagics(None).models("list --to localhost:5000/lab/iris")
    with pytest.raises(UsageError, match=r"^`%serve stop` has no option --wait; its options are --name$"):
        ServingMagics(None).serve("stop iris --wait")
