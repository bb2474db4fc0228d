"""A rank that joins a world restores the environment variables that only the previous world had set."""

import os

import pytest
from farandole.ranks.world import launcher, membership

ALONE = {"FARANDOLE_BACKEND": "none", "HOROVOD_GLOO_IFACE": "lo", "HOROVOD_SIZE": "1"}
TOGETHER = {"FARANDOLE_BACKEND": "none", "HOROVOD_SIZE": "3", "HOROVOD_GLOO_RENDEZVOUS_PORT": "1234"}


@pytest.mark.parametrize("own", [{}, {"HOROVOD_GLOO_IFACE": "eth1", "HOROVOD_GLOO_RENDEZVOUS_PORT": "80"}])
def test_variables_of_an_earlier_world_are_restored(monkeypatch, own):
    monkeypatch.setattr(os, "environ", {"HOME": "/home/ada"} | own)
    monkeypatch.setattr(membership, "_saved", {})
    before = dict(os.environ)
    for _ in range(2):
        membership.form_world(ALONE)
        assert os.environ == before | ALONE
        membership.form_world(TOGETHER)
        assert os.environ == before | TOGETHER


def test_variables_of_this_process_are_set_for_each_world_and_restored(monkeypatch):
    monkeypatch.setattr(os, "environ", {"HOME": "/home/ada"})
    monkeypatch.setattr(membership, "_saved", {})
    seen = []

    def set_up():
        seen.append(dict(os.environ))
        return {"OMP_NUM_THREADS": os.environ["HOROVOD_SIZE"]}

    monkeypatch.setattr(launcher, "set_up", set_up)
    for environment in (ALONE, TOGETHER):
        membership.form_world(environment)
        assert os.environ["OMP_NUM_THREADS"] == environment["HOROVOD_SIZE"]
    # The number of an earlier world must not look like one that the user has set.
    assert all("OMP_NUM_THREADS" not in environment for environment in seen)
    monkeypatch.setattr(launcher, "set_up", dict)
    membership.form_world({"FARANDOLE_BACKEND": "none"})
    assert os.environ == {"HOME": "/home/ada", "FARANDOLE_BACKEND": "none"}
