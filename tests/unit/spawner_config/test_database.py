from __future__ import annotations

import re

import pytest
from sqlalchemy import make_url

from spawner_config.database import connect_options, database_url, refusal
from spawner_config.settings import DATABASE_EXAMPLE, SettingsError

SAID = """connection failed: connection to server at "172.18.0.2", port 5432 failed:
FATAL:  password authentication failed for user "farandole"
"""


def test_without_a_database_the_hub_uses_a_file(tmp_path):
    assert database_url({"COMPOSE_PROFILES": "tls"}, tmp_path) == f"sqlite:///{tmp_path}/jupyterhub.sqlite"


def test_a_reachable_database_is_used(tmp_path):
    url = f"sqlite:///{tmp_path}/another.sqlite"
    assert database_url({"FARANDOLE_DATABASE": url, "COMPOSE_PROFILES": "postgres"}, tmp_path) == url


def test_a_postgres_without_its_setting_is_reported(tmp_path):
    with pytest.raises(SettingsError, match="FARANDOLE_DATABASE is empty.*Set FARANDOLE_DATABASE to postgresql"):
        database_url({"COMPOSE_PROFILES": "tls,postgres"}, tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "postgres://farandole:hush@postgres/x",
        "nothing+known://a:hush@b/c",
        "postgresql+psycopg://a:hush@b:hush/c",
        "sqlite://a:hu@hush:x@b/c",
    ],
)
def test_an_invalid_address_is_reported_without_its_password(url, tmp_path):
    with pytest.raises(SettingsError, match="FARANDOLE_DATABASE is not the address") as caught:
        database_url({"FARANDOLE_DATABASE": url}, tmp_path)
    assert DATABASE_EXAMPLE in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("password", ["left@right", "left@right/end"])
def test_an_at_sign_in_a_password_is_reported_without_the_password(password, tmp_path):
    with pytest.raises(SettingsError, match="write %40 instead") as caught:
        database_url({"FARANDOLE_DATABASE": f"postgresql+psycopg://farandole:{password}@postgres/x"}, tmp_path)
    assert not {"left", "right"} & set(re.findall(r"\w+", str(caught.value)))
    assert "an @ in the password" in str(caught.value.__cause__)


def test_a_server_that_does_not_answer_is_given_up(tmp_path):
    assert connect_options(make_url(DATABASE_EXAMPLE)) == {"connect_timeout": 10}
    assert connect_options(make_url(f"sqlite:///{tmp_path}/x")) == {}


def test_an_unusable_database_is_reported(tmp_path):
    with pytest.raises(SettingsError, match="cannot be used .unable to open database file.. Check that the address"):
        database_url({"FARANDOLE_DATABASE": f"sqlite:///{tmp_path}/no/such/folder"}, tmp_path)


def test_a_wrong_password_is_reported_in_one_line_with_the_remedy():
    message = refusal(SAID)
    assert "rejects the password in FARANDOLE_DATABASE" in message
    assert 'failed: FATAL: password authentication failed for user "farandole")' in message
    assert "docker compose exec postgres psql -U farandole -c '\\password'" in message
