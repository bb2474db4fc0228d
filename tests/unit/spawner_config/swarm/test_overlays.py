"""Tests for users' networks on a swarm, with a fake engine that stores networks in a dictionary."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest

from spawner_config.containers.addresses import AddressRange
from spawner_config.containers.networks import NetworkError
from spawner_config.swarm import overlays
from spawner_config.swarm.overlays import NETWORK_LABEL, PREFIX, UserOverlays
from tests.unit.spawner_config.containers.test_networks import SERVICES, Engine, refused

NETWORK = "farandole-user-ada"


class SwarmEngine(Engine):
    """A fake swarm manager with networks, this machine's containers in them, and the labels of the swarm's services."""

    def __init__(self, *, without_addresses=0):
        super().__init__()
        self.without_addresses = without_addresses
        self.service_labels = []
        self.made = []
        self.addresses = {}
        self.busy = 0

    def create_network(self, name, **options):
        self.made.append(options)
        super().create_network(name, **{"internal": False, **options})
        # An engine reports None here until a container on this machine joins the network.
        next(network for network in self.networks_by_id.values() if network["Name"] == name)["Containers"] = None

    def inspect_network(self, key):
        network = super().inspect_network(key)
        if not self.without_addresses:
            return network
        self.without_addresses -= 1
        return {**network, "IPAM": {"Config": None}}

    def connect_container_to_network(self, container, key, aliases=(), ipv4_address=None):
        network = self.networks_by_id[key]
        network["Containers"] = network["Containers"] or {"lb": {"Name": f"{network['Name']}-endpoint"}}
        super().connect_container_to_network(container, key, aliases)
        self.addresses[container] = ipv4_address

    def services(self, filters):
        return [each for each in self.service_labels if all(wanted in each for wanted in filters["label"])]

    def remove_network(self, key):
        if self.busy:
            self.busy -= 1
            raise refused(400, "network is in use by task")
        del self.networks_by_id[key]


def make(engine, **options):
    settings = {"name": "farandole", "services": SERVICES, "internet": True, "mtu": 1500, **options}
    addresses = AddressRange(whole=IPv4Network("10.213.0.0/24"), prefix=PREFIX)
    return UserOverlays(engine, addresses=addresses, **settings)


async def test_a_network_spans_all_machines_and_has_a_smaller_mtu():
    engine = SwarmEngine()
    await make(engine).hold("ada", "")
    [made] = engine.made
    assert (made["driver"], made["attachable"], made["internal"]) == ("overlay", True, False)
    assert made["options"] == {"com.docker.network.driver.mtu": "1450"}
    assert made["ipam"]["Config"][0]["Subnet"] == "10.213.0.0/25"


async def test_hub_and_proxy_have_reserved_addresses():
    engine = SwarmEngine()
    networks = make(engine)
    await networks.hold("ada", "")
    assert engine.addresses == {"farandole-hub": "10.213.0.126", "farandole-proxy": "10.213.0.125"}
    assert engine.made[0]["ipam"]["Config"][0]["IPRange"] == "10.213.0.0/26"


async def test_a_start_waits_until_a_new_network_has_its_addresses():
    engine = SwarmEngine(without_addresses=3)
    await make(engine).hold("ada", "")
    assert set(engine.addresses) == set(SERVICES)


async def test_a_network_without_addresses_is_named_with_the_remedy(monkeypatch, caplog):
    monkeypatch.setattr(overlays, "ADDRESS_SECONDS", 0.2)
    engine = SwarmEngine(without_addresses=1000)
    networks = make(engine)
    with pytest.raises(NetworkError, match=f"given {NETWORK} no addresses. Remove it with `docker network rm`"):
        await networks.hold("ada", "")
    # A hub that is starting does not wait until such a network has addresses.
    monkeypatch.setattr(overlays, "ADDRESS_SECONDS", 60.0)
    looks = engine.without_addresses
    networks.rejoin()
    assert looks - engine.without_addresses == 1
    assert f"cannot be connected to {NETWORK}: The swarm has given" in caplog.text


async def test_a_recreated_hub_has_the_same_address():
    engine = SwarmEngine()
    await make(engine).hold("ada", "")
    engine.disconnect_container_from_network("farandole-hub", "id-0", force=True)
    del engine.addresses["farandole-hub"]
    make(engine).rejoin()
    assert engine.addresses["farandole-hub"] == "10.213.0.126"


async def test_a_network_is_kept_while_a_server_on_another_machine_uses_it():
    engine = SwarmEngine()
    await make(engine).hold("ada", "")
    engine.service_labels = [["farandole.hub=farandole", f"{NETWORK_LABEL}={NETWORK}"]]
    # A restarted hub does not know the server, and the network lists only the containers on this machine.
    networks = make(engine)
    await networks.release("ada", "main-w0")
    assert set(engine.networks_by_id["id-0"]["Containers"]) == {"lb", *SERVICES}
    engine.service_labels = []
    await networks.release("ada", "main-w1")
    assert not engine.networks_by_id


async def test_a_network_is_removed_once_the_swarm_releases_it(monkeypatch):
    monkeypatch.setattr(overlays, "POLL_SECONDS", 0.01)
    engine = SwarmEngine()
    networks = make(engine)
    await networks.hold("ada", "")
    engine.busy = 3
    await networks.release("ada", "")
    assert (engine.busy, engine.networks_by_id) == (0, {})


async def test_a_network_that_remains_in_use_is_logged_and_reused(monkeypatch, caplog):
    monkeypatch.setattr(overlays, "REMOVAL_SECONDS", 0.05)
    monkeypatch.setattr(overlays, "POLL_SECONDS", 0.01)
    engine = SwarmEngine()
    networks = make(engine)
    await networks.hold("ada", "")
    engine.busy = 1000
    await networks.release("ada", "")
    assert f"The network {NETWORK} could not be removed: network is in use by task" in caplog.text
    await networks.hold("ada", "")
    assert set(engine.networks_by_id["id-0"]["Containers"]) == {"lb", *SERVICES}


@pytest.mark.parametrize("internet", [True, False])
async def test_without_internet_the_network_is_internal(internet):
    engine = SwarmEngine()
    await make(engine, internet=internet).hold("ada", "")
    assert engine.made[0]["internal"] is not internet
