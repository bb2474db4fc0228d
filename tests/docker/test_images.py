"""The images that `make images` builds, and a course's image that is based on one of them."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from images.build import BuildError, check_debian, run_build
from images.debian import DebianError, gather, installed, own_archive, read_record, sources
from images.extra import build_extra
from images.names import (
    CUDA,
    HUB,
    NOTEBOOK,
    NOTEBOOK_CUDA,
    ROOT,
    SERVING,
    SERVING_TORCH,
    Image,
    pinned,
    registry_prefix,
    version,
)

if TYPE_CHECKING:
    from pathlib import Path

COURSE = "farandole-test"
EACH = pytest.mark.parametrize("image", [HUB, NOTEBOOK, SERVING, SERVING_TORCH], ids=lambda image: image.wheels.name)


def docker(*arguments: str) -> str:
    result = subprocess.run(["docker", *arguments], check=False, capture_output=True, text=True)
    assert result.returncode == 0, f"docker {' '.join(arguments)}\n{result.stdout}{result.stderr}"
    return result.stdout


def run(image: Image | str, *command: str) -> str:
    tag = image if isinstance(image, str) else image.tag(version())
    # Set a host name that resolves, because Horovod looks it up and a container without a network has no address.
    return docker("run", "--rm", "--network=none", "--hostname=localhost", tag, *command)


def inspect(image: Image | str) -> dict[str, Any]:
    tag = image if isinstance(image, str) else image.tag(version())
    found: dict[str, Any] = json.loads(docker("image", "inspect", tag))[0]
    return found


@EACH
def test_an_image_does_not_exceed_its_size_limit(image: Image) -> None:
    assert image.limit is not None
    assert inspect(image)["Size"] <= image.limit


@EACH
def test_an_image_has_labels_and_a_health_check(image: Image) -> None:
    config = inspect(image)["Config"]
    assert config["Labels"]["org.opencontainers.image.version"] == version()
    assert config["Labels"]["org.opencontainers.image.revision"]
    assert config["Healthcheck"]["Test"]
    assert config["User"] == "user"
    assert config["Entrypoint"][0] == "/usr/bin/tini"
    assert run(image, "id", "-u").strip() == "1000"


def test_the_notebook_image_names_its_torch_and_horovod() -> None:
    labels = inspect(NOTEBOOK)["Config"]["Labels"]
    assert labels["farandole.torch"] == pinned(NOTEBOOK.requirements, "torch")
    assert labels["farandole.horovod"] == "0.28.1"


@EACH
def test_packages_have_their_pinned_versions(image: Image) -> None:
    code = (
        "import importlib.metadata as m, json, re; print(json.dumps({re.sub('[-_.]+', '-', d.name).lower(): "
        "d.version.partition('+')[0] for d in m.distributions()}))"
    )
    installed = json.loads(run(image, "python", "-c", code))
    lines = image.requirements.read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    if image.name == SERVING.name:
        # images/slim.py removes these packages, which KServe and torch need only for other purposes.
        del pins["pillow"], pins["setuptools"]
    assert pins.items() <= installed.items()
    assert set(installed) - set(pins) <= {"farandole", "horovod", "pip", "setuptools"}


@EACH
def test_debian_packages_are_compared_with_the_record(image: Image, capsys: pytest.CaptureFixture[str]) -> None:
    built, recorded = installed(image.tag(version())), read_record(image.debian).packages
    listed = [line for line in run(image, "dpkg", "--list").splitlines() if line.startswith("ii")]
    assert len(built) == len(listed)
    assert built.keys() & recorded.keys() >= {"libc6", "python3", "tini", "ca-certificates"}
    check_debian(image, {**built, "tini": "0-other"}, exact=False)
    assert f"tini 0-other (recorded: {recorded['tini']})" in capsys.readouterr().err
    with pytest.raises(BuildError, match="tini 0-other"):
        check_debian(image, {**built, "tini": "0-other"}, exact=True)


@pytest.mark.parametrize("image", [HUB, NOTEBOOK], ids=lambda image: image.name)
def test_the_hub_and_notebooks_have_restic(image: Image) -> None:
    assert run(image, "restic", "version").startswith("restic 0.")


def test_notebooks_know_the_languages_of_jupyterlab() -> None:
    codes = ("de_DE", "en_US", "ja_JP", "nb_NO", "pt_BR", "zh_CN", "zh_TW")
    code = f"from babel import Locale; print([Locale.parse(code).get_display_name('en') for code in {codes}])"
    assert "Chinese (Traditional, Taiwan)" in run(NOTEBOOK, "python", "-c", code)


def build_base(folder: Path, archive: str) -> str:
    """Build the first stage of `make images DEBIAN=archive` in ``folder``, and return the image's id."""
    gather(archive, folder / "build" / "images" / "debian")
    # Do not use cached layers, because they may come from another archive.
    return run_build(["--no-cache", "--target=base", f"--file={HUB.dockerfile}", str(folder)])


@pytest.mark.release
def test_a_given_archive_is_the_only_one_and_in_no_layer(tmp_path: Path) -> None:
    archive = own_archive()
    built = build_base(tmp_path, archive)
    try:
        mounts = [
            f"--volume={tmp_path}/build/images/debian:/mnt:ro",
            "--env=APT_CONFIG=/mnt/apt.conf",
            "--network=none",
        ]
        asked = docker("run", "--rm", *mounts, built, "apt-get", "update", "--print-uris")
        suites = {address.partition("/main/")[0].removesuffix("/InRelease") for address in asked.split("'")[1::2]}
        named = [line.split()[1:3] for line in sources(archive).splitlines()]
        assert suites == {f"{place}/dists/{suite}" for place, suite in named}
        assert installed(built).keys() >= {"tini", "python3", "ca-certificates"}
        kept = "cd /etc/apt && find . -type f -exec sha256sum {} + | sort; ls -A /mnt /var/lib/apt/lists"
        assert run(built, "sh", "-c", kept) == run("debian:bookworm-slim", "sh", "-c", kept)
    finally:
        docker("rmi", built)


@pytest.mark.release
def test_an_unreachable_archive_fails_the_build(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The build fails only if apt uses no other source."""
    address = "http://127.0.0.1:9/debian"
    with pytest.raises(BuildError, match="reason is above"):
        build_base(tmp_path, address)
    assert f"{address}/dists/bookworm" in capfd.readouterr().err


def test_an_image_whose_packages_cannot_be_listed_is_named() -> None:
    with pytest.raises(DebianError, match=r"the image farandole-test-none cannot be listed: .*No such image"):
        installed("farandole-test-none")


@EACH
def test_no_image_has_a_compiler_package_manager_or_engine_client(image: Image) -> None:
    allowed = ["node"] if image is HUB else []
    names = [name for name in ("gcc", "g++", "cc", "clang", "make", "node", "npm", "docker") if name not in allowed]
    assert run(image, "sh", "-c", f"for name in {' '.join(names)}; do command -v $name; done; true") == ""


@EACH
def test_no_layer_contains_the_source_of_its_packages(image: Image) -> None:
    history = docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", image.tag(version()))
    for word in ("index-url", "token", "password", "BEGIN CERTIFICATE"):
        assert word not in history
    assert run(image, "sh", "-c", "cat /etc/pip.conf ~/.netrc ~/.npmrc ~/.config/pip/pip.conf 2>/dev/null; true") == ""


def test_new_users_get_the_notebooks_and_keep_their_own_files() -> None:
    shown = run(NOTEBOOK, "sh", "-c", "ls /home/user; cat /home/user/*.ipynb | head -c 1")
    assert shown.split() == [*sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb")), "{"]
    again = "echo mine >01-first-distributed-training.ipynb; python3 /opt/farandole/start.py cat 01-*.ipynb"
    assert run(NOTEBOOK, "sh", "-c", again).strip() == "mine"


def test_the_hub_image_runs_the_hub_and_the_proxy() -> None:
    assert run(HUB, "jupyterhub", "--version").strip()
    assert run(HUB, "configurable-http-proxy", "--version").strip()


def test_the_notebook_image_trains_alone() -> None:
    code = "import horovod.torch as hvd, torch; hvd.init(); print(float(hvd.allreduce(torch.ones(3)).sum()))"
    assert run(NOTEBOOK, "python", "-c", code).strip() == "3.0"


@pytest.mark.parametrize(("image", "torch"), [(SERVING, False), (SERVING_TORCH, True)], ids=["onnx", "torch"])
def test_the_image_of_endpoints_has_its_runtimes_and_ignores_the_users_modules(image: Image, torch: bool) -> None:
    code = (
        "import importlib.util as u; import farandole.serving.__main__, onnxruntime; print(bool(u.find_spec('torch')))"
    )
    command = (
        f'mkdir torch && echo "raise OSError" >statistics.py && python -c "{code}" && python -m farandole.serving -h'
    )
    output = run(image, "sh", "-c", command)
    assert output.startswith(f"{torch}\n")
    assert "the model to serve" in output


def test_a_course_has_its_own_image_which_a_bad_package_does_not_change(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    extra = tmp_path / "requirements.txt"
    extra.write_text("roman-numerals\n")
    tag = f"{registry_prefix()}{NOTEBOOK.repository}-{COURSE}:{version()}"
    try:
        assert build_extra(extra, COURSE) == tag
        before = inspect(tag)["Id"]
        assert run(tag, "python", "-c", "import roman_numerals, torch; print('both')").strip() == "both"
        assert run(tag, "id", "-u").strip() == "1000"
        for bad in ("farandole-has-no-such-package-0\n", "torch==2.5.0\n"):
            extra.write_text(bad)
            with pytest.raises(BuildError, match="earlier build is unchanged"):
                build_extra(extra, COURSE)
            assert bad.partition("==")[0].strip() in capfd.readouterr().err
        assert inspect(tag)["Id"] == before
    finally:
        subprocess.run(["docker", "rmi", tag], check=False, capture_output=True)


@pytest.mark.parametrize("name", ["", "Course", "a b", "../x", "a--b"])
def test_an_invalid_name_of_an_image_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="NAME"):
        build_extra(tmp_path / "requirements.txt", name)


def test_the_image_for_gpus_has_its_own_name() -> None:
    assert NOTEBOOK_CUDA.tag("1.2") == "farandole-notebook:1.2-cuda"
    assert NOTEBOOK_CUDA.requirements.name == "requirements-cuda.txt"
    assert pinned(NOTEBOOK_CUDA.requirements, "torch") == pinned(NOTEBOOK.requirements, "torch")
    assert NOTEBOOK_CUDA.accelerator == CUDA
