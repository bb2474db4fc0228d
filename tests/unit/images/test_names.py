"""Tests for the names and files of the images, and for the settings and build arguments that depend on them."""

from __future__ import annotations

import pytest

from images.build import own_arguments
from images.names import CPU, CUDA, HUB, IMAGES, NOTEBOOK, NOTEBOOK_CUDA, ROOT, SERVING, SERVING_TORCH, Image, pinned
from images.publish import SETTINGS

ALL = (HUB, NOTEBOOK, NOTEBOOK_CUDA, SERVING, SERVING_TORCH)


def test_variants_differ_in_their_tags_and_packages() -> None:
    assert SERVING.tag("1.2", "registry.example.org/") == "registry.example.org/farandole-serving:1.2"
    assert SERVING_TORCH.tag("1.2") == "farandole-serving:1.2-torch"
    assert SERVING.requirements == IMAGES / "serving" / "requirements.txt"
    assert SERVING_TORCH.requirements == IMAGES / "serving" / "requirements-torch.txt"
    assert SERVING.dockerfile == SERVING_TORCH.dockerfile
    assert SERVING.debian == SERVING_TORCH.debian
    assert len({image.wheels for image in ALL}) == len(ALL)


def test_only_the_variant_for_cuda_has_another_accelerator() -> None:
    assert {image: image.accelerator for image in ALL} == {**dict.fromkeys(ALL, CPU), NOTEBOOK_CUDA: CUDA}


@pytest.mark.parametrize(("image", "runtime"), [(SERVING, "onnx"), (SERVING_TORCH, "torch")])
def test_the_wheels_of_a_variant_are_where_its_build_looks_for_them(image: Image, runtime: str) -> None:
    assert own_arguments(image) == {"RUNTIME": runtime}
    stage = image.dockerfile.read_text().partition(f"AS packages-{runtime}\n")[2].partition("\nFROM ")[0]
    assert f"source={image.wheels.relative_to(ROOT)},target=/wheels" in stage
    assert f"COPY {image.requirements.relative_to(ROOT)} " in stage


def test_the_images_of_endpoints_have_the_packages_of_the_other_environments() -> None:
    assert pinned(SERVING.requirements, "jupyterhub") == pinned(HUB.requirements, "jupyterhub")
    assert pinned(SERVING_TORCH.requirements, "torch") == pinned(NOTEBOOK.requirements, "torch")
    plain, torch = (set(image.requirements.read_text().splitlines()[1:]) for image in (SERVING, SERVING_TORCH))
    assert plain < torch
    with pytest.raises(LookupError):
        pinned(SERVING.requirements, "torch")


@pytest.mark.parametrize("file", ["docker-compose.yml", ".env.example"])
def test_each_image_has_a_setting(file: str) -> None:
    assert set(SETTINGS) == set(ALL)
    text = (ROOT / file).read_text()
    assert [setting for setting in SETTINGS.values() if setting not in text] == []
