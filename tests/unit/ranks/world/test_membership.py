"""A rank that joins a world restores the environment variables that only the previous world had set."""

import os

import pytest
from farandole.ranks.world import membership

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
