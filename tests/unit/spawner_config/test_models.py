"""Tests for the models of settings and tables. Every field that can be invalid has a description for its error."""

from __future__ import annotations

import pytest

from hub.engine_filter.rules import Rules
from spawner_config.containers.settings import DockerSettings
from spawner_config.kubernetes.profiles import PodNeeds
from spawner_config.kubernetes.settings import KubernetesSettings
from spawner_config.lifecycle.idle import IdleLimits
from spawner_config.models import Checked
from spawner_config.profiles.limits import Limits
from spawner_config.profiles.profiles import Profile, ProfilesFile
from spawner_config.settings import ProfileError, SettingsError
from spawner_config.swarm.settings import SwarmTable

TABLES = (Limits, PodNeeds, Profile, ProfilesFile, SwarmTable)
VARIABLES = (DockerSettings, IdleLimits, KubernetesSettings, Rules)
NEVER_WRONG = {
    "name",
    "gpu_image",
    "serving_image",
    "serving_torch_image",
    "shares",
    "home_class",
    "gpu_kind",
    "homes",
    "shared_volumes",
}
"""Fields that need no description, because they accept any text or are not read from a variable."""


@pytest.mark.parametrize("model", [*TABLES, *VARIABLES])
def test_every_field_that_can_be_invalid_is_described(model: type[Checked]) -> None:
    undescribed = {name for name, field in model.model_fields.items() if not field.description}
    assert undescribed <= (NEVER_WRONG if model in VARIABLES else set())


def test_an_error_names_the_variable_its_value_and_the_remedy() -> None:
    environ = {"FARANDOLE_NOTEBOOK_IMAGE": "farandole-notebook:1", "FARANDOLE_SUBNETS": "10.0.0.1/16"}
    with pytest.raises(SettingsError) as caught:
        DockerSettings.from_environment(environ)
    assert str(caught.value) == (
        "FARANDOLE_SUBNETS is '10.0.0.1/16': 10.0.0.1/16 has host bits set. It must be a range such as '10.213.0.0/16'."
    )
    with pytest.raises(SettingsError, match="FARANDOLE_NOTEBOOK_IMAGE is not set. It must be the name of the notebook"):
        DockerSettings.from_environment({})


@pytest.mark.parametrize("text", ["1500.0", "1_500", " 1500", "+1500"])
def test_a_number_contains_only_digits(text: str) -> None:
    environ = {"FARANDOLE_NOTEBOOK_IMAGE": "farandole-notebook:1", "FARANDOLE_MTU": text}
    with pytest.raises(SettingsError) as caught:
        DockerSettings.from_environment(environ)
    assert str(caught.value) == f"FARANDOLE_MTU is {text!r}. It must be a number from 576 to 65535."


def test_only_the_documented_variables_are_read() -> None:
    environ = {"FARANDOLE_NOTEBOOK_IMAGE": "farandole-notebook:1", "FARANDOLE_SHARES": "none is called this"}
    assert DockerSettings.from_environment(environ).shares.folders == ()


def test_a_key_may_have_any_name() -> None:
    with pytest.raises(ProfileError, match="unknown key 'self'"):
        Profile(name="small", description="", self=1)
