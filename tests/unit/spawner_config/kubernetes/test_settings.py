"""Tests for the environment variables that configure a hub on Kubernetes."""

from __future__ import annotations

import pytest

from spawner_config.kubernetes.settings import KubernetesSettings, service_url
from spawner_config.settings import SettingsError

NEEDED = {"FARANDOLE_NOTEBOOK_IMAGE": "farandole-notebook:1"}


def test_one_setting_is_enough() -> None:
    ours = KubernetesSettings.from_environment(NEEDED)
    assert (ours.name, ours.memory, ours.place_seconds, ours.https) == ("farandole", "4G", 120, False)
    assert ours.gpu_image == "farandole-notebook:1"
    assert (ours.home_size.all, ours.home_class, ours.home_access) == (10 * 2**30, None, "ReadWriteMany")


def test_all_settings_are_read() -> None:
    ours = KubernetesSettings.from_environment(
        {
            **NEEDED,
            "FARANDOLE_NAME": "vision-lab",
            "FARANDOLE_GPU_IMAGE": "farandole-notebook:1-cuda",
            "FARANDOLE_PULL_SECRETS": "registry, other ,",
            "FARANDOLE_HOME_SIZE": "512Mi",
            "FARANDOLE_HOME_CLASS": "nfs",
            "FARANDOLE_HOME_ACCESS": "ReadWriteOnce",
            "FARANDOLE_GPU_RESOURCE": "amd.com/gpu",
            "FARANDOLE_GPU_CLASS_LABEL": "gpu",
            "FARANDOLE_PLACE_SECONDS": "600",
            "FARANDOLE_HTTPS": "yes",
            "FARANDOLE_POD_LABELS": "app=jupyterhub, release=lab",
            "FARANDOLE_SHARED_VOLUMES": "imagenet:/data/imagenet",
        }
    )
    assert ours.pod_labels == {"app": "jupyterhub", "release": "lab"}
    assert ours.pull_secrets == ("registry", "other")
    assert (ours.gpu_image, ours.gpu_resource, ours.gpu_class_label) == (
        "farandole-notebook:1-cuda",
        "amd.com/gpu",
        "gpu",
    )
    assert (ours.home_size.all, ours.home_class, ours.home_access) == (2**29, "nfs", "ReadWriteOnce")
    assert (ours.place_seconds, ours.https, ours.shares.data[0].volume) == (600, True, "imagenet")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("FARANDOLE_NOTEBOOK_IMAGE", ""),
        ("FARANDOLE_NAME", "a-name-too-long"),
        ("FARANDOLE_NAME", "Lab"),
        ("FARANDOLE_PULL_SECRETS", "my secret"),
        ("FARANDOLE_POD_LABELS", "jupyterhub"),
        ("FARANDOLE_POD_LABELS", "app=vision"),
        ("FARANDOLE_POD_LABELS", "component=vision"),
        ("FARANDOLE_POD_LABELS", "farandole.user=grace"),
        ("FARANDOLE_POD_LABELS", "hub.jupyter.org/username=grace"),
        ("FARANDOLE_MEMORY", "lots"),
        ("FARANDOLE_HOME_SIZE", "10 GB"),
        ("FARANDOLE_HOME_ACCESS", "ReadOnlyMany"),
        ("FARANDOLE_GPU_RESOURCE", "a gpu"),
        ("FARANDOLE_GPU_CLASS_LABEL", "="),
        ("FARANDOLE_PLACE_SECONDS", "0"),
        ("FARANDOLE_PLACE_SECONDS", "2m"),
        ("FARANDOLE_NOTEBOOK_PRIORITY", "My notebooks"),
        ("FARANDOLE_HTTPS", "true"),
        ("FARANDOLE_SHARED_VOLUMES", "ImageNet:/data/imagenet"),
        ("FARANDOLE_SHARED_VOLUMES", "farandole-home-ada:/data/ada"),
    ],
)
def test_an_invalid_value_is_refused_with_its_name(key: str, value: str) -> None:
    with pytest.raises(SettingsError, match=key):
        KubernetesSettings.from_environment({**NEEDED, key: value})


def test_a_service_has_its_fixed_address_or_the_configured_one() -> None:
    environ = {"PROXY_API_SERVICE_HOST": "10.96.0.7", "PROXY_API_SERVICE_PORT": "8001"}
    assert service_url(environ, "proxy-api", "FARANDOLE_PROXY_API_ADDRESS") == "http://10.96.0.7:8001"
    assert service_url({"KEY": "http://hub:8081/"}, "hub", "KEY") == "http://hub:8081"
    assert service_url({"HUB_SERVICE_HOST": "fd00::7", "HUB_SERVICE_PORT": "81"}, "hub", "KEY") == "http://[fd00::7]:81"
    with pytest.raises(SettingsError, match=r"no Service 'hub'.*FARANDOLE_HUB_ADDRESS"):
        service_url({}, "hub", "FARANDOLE_HUB_ADDRESS")
