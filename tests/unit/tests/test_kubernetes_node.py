"""Tests for the code that sets up and removes the tests' Kubernetes node. These tests do not start a node."""

from __future__ import annotations

import io
import json
import tarfile
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from spawner_config.containers.spawner import PROCESSES
from spawner_config.settings import ROOT
from tests.docker.engines import debian
from tests.docker.engines.remains import Remains
from tests.kubernetes.node import pause, settings
from tests.kubernetes.node.daemons import Commands
from tests.kubernetes.node.keys import Keys


def commands(folder: Path) -> Commands:
    return Commands(
        folder=folder,
        keys=Keys(folder=folder / "keys"),
        enter=("nsenter", "--net=/run/netns/x"),
        address="10.0.0.2",
        services=IPv4Network("10.0.1.0/24"),
        pods=IPv4Network("10.0.2.0/24"),
        node="node-1",
    )


def test_each_daemon_is_recognised_by_its_folder_and_runs_inside_the_network(tmp_path: Path) -> None:
    daemons = commands(tmp_path).all()
    assert [daemon.name for daemon in daemons][:2] == ["etcd", "kube-apiserver"]
    assert len({daemon.name for daemon in daemons}) == len(daemons) == 7
    for daemon in daemons:
        assert daemon.command[:3] == ("nsenter", "--net=/run/netns/x", daemon.name)
        assert any(str(tmp_path) in word for word in daemon.command)


def test_the_pause_image_contains_one_executable_program(tmp_path: Path) -> None:
    (tmp_path / "pause").write_bytes(b"program")
    pause.write_image(tmp_path / "image.tar", "some/pause:1", tmp_path / "pause")
    with tarfile.open(tmp_path / "image.tar") as image:
        files = {name: read(image, name) for name in image.getnames()}
    [manifest] = json.loads(files["manifest.json"])
    assert manifest["RepoTags"] == ["some/pause:1"]
    assert json.loads(files[manifest["Config"]])["config"]["Entrypoint"] == ["/pause"]
    with tarfile.open(fileobj=io.BytesIO(files[manifest["Layers"][0]])) as layer:
        assert read(layer, "pause") == b"program"
        assert layer.getmember("pause").mode == 0o755


def read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()


def test_only_our_pods_networks_are_removed(tmp_path: Path) -> None:
    ours = [f"{settings.NETWORK}-abc-eth0", "cni-loopback-abc-lo"]
    others = ["k8s-def-eth0", "cni-loopback-def-lo"]
    for name in (*ours, *others):
        (tmp_path / name).touch()
    settings.forget_networks(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


def test_the_kubelet_keeps_all_pods_in_our_control_group(tmp_path: Path) -> None:
    found = settings.kubelet(tmp_path, Keys(folder=tmp_path), address="10.0.0.2", groups="some-name")
    assert found["cgroupRoot"] == "/some-name"
    assert found["authentication"]["anonymous"] == {"enabled": False}


def test_the_kubelet_limits_processes_as_the_documentation_recommends(tmp_path: Path) -> None:
    found = settings.kubelet(tmp_path, Keys(folder=tmp_path), address="10.0.0.2", groups="some-name")
    assert found["podPidsLimit"] == PROCESSES
    assert f"`podPidsLimit: {PROCESSES}`" in (ROOT / "docs" / "how-to" / "kubernetes.md").read_text(encoding="utf-8")


def test_a_kubeconfig_is_readable_by_its_holder_only(tmp_path: Path) -> None:
    keys = Keys(folder=tmp_path / "keys")
    keys.make_authority()
    keys.make("admin", "/O=system:masters/CN=admin")
    path = keys.kubeconfig("admin", "https://10.0.0.2:6443")
    assert path.stat().st_mode & 0o077 == 0
    assert json.loads(path.read_text())["clusters"][0]["cluster"]["server"] == "https://10.0.0.2:6443"
    assert set(json.loads(path.read_text())["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}


def test_cached_files_are_made_once_and_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "CACHE", tmp_path)

    def fail(part: Path) -> None:
        (part / "files").mkdir()
        raise debian.SetUpError("no disk")

    with pytest.raises(debian.SetUpError, match="no disk"):
        debian.kept("programs", fail)
    assert list(tmp_path.iterdir()) == []

    made = []

    def make(part: Path) -> None:
        made.append(part)
        (part / "files").mkdir()
        (part / "files" / "program").touch()

    assert debian.kept("programs", make) == debian.kept("programs", make) == tmp_path / "programs"
    assert len(made) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["programs"]


def test_without_remains_of_daemons_nothing_is_removed(tmp_path: Path) -> None:
    left = Remains(name="farandole-unit-test", folder=tmp_path, containerd=tmp_path / "containerd.sock")
    left.end_containers()
    left.unmount()
    left.remove_groups()
    assert tmp_path.is_dir()
