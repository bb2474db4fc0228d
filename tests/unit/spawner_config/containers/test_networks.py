from __future__ import annotations

import asyncio
from ipaddress import IPv4Network
from types import SimpleNamespace

import pytest
import requests
from docker.errors import APIError, NotFound
from jupyterhub.proxy import ConfigurableHTTPProxy

from spawner_config.containers.addresses import AddressRange
from spawner_config.containers.compose_hub import optional_services, services
from spawner_config.containers.networks import NO_ADDRESS_OPTION, NetworkError, UserNetworks
from spawner_config.containers.proxy import NetworkedProxy
from spawner_config.labels import HUB_LABEL, OWNER_LABEL
from spawner_config.refusals import ForeignObjectError
from tests.unit.spawner_config.access.test_slugs import FIRST, SECOND

SERVICES = {"farandole-hub": "hub", "farandole-proxy": "proxy"}


class Response:
    def __init__(self, status):
        self.status_code = status
        self.reason = "refused"
        self.url = "engine"


def refused(status, why):
    return APIError("refused", response=Response(status), explanation=why)


class Engine:
    """A fake engine that stores networks and the containers connected to them."""

    def __init__(self, *, routes=()):
        self.networks_by_id = {}
        self.routes = [IPv4Network(route) for route in routes]

    def networks(self, filters=None):
        key, _, value = (filters or {"label": ""})["label"].partition("=")
        found = self.networks_by_id.values()
        return [network for network in found if not filters or network["Labels"].get(key) == value]

    def inspect_network(self, key):
        for network in self.networks_by_id.values():
            if key in (network["Id"], network["Name"]):
                return network
        raise NotFound("no such network", response=Response(404))

    def create_network(self, name, *, ipam, labels, internal, options, **_):
        subnet = IPv4Network(ipam["Config"][0]["Subnet"])
        if any(subnet.overlaps(route) for route in self.routes):
            raise refused(403, "Pool overlaps with other one on this address space")
        key = f"id-{len(self.networks_by_id)}"
        self.networks_by_id[key] = {
            "Id": key, "Name": name, "Labels": labels, "Internal": internal, "Options": options,
            "Containers": {}, "Aliases": {}, "IPAM": {"Config": [{"Subnet": str(subnet)}]},
        }  # fmt: skip

    def connect_container_to_network(self, container, key, aliases=()):
        network = self.networks_by_id[key]
        if container in network["Containers"]:
            raise refused(403, f"endpoint with name {container} already exists in network {network['Name']}")
        network["Containers"][container] = {"Name": container}
        network["Aliases"][container] = list(aliases)

    def disconnect_container_from_network(self, container, key, force):
        assert force
        del self.networks_by_id[key]["Containers"][container]

    def remove_network(self, key):
        assert not self.networks_by_id[key]["Containers"]
        del self.networks_by_id[key]


def make(engine, whole="10.213.0.0/24", **options):
    settings = {"name": "farandole", "services": SERVICES, "internet": True, "mtu": 1400, **options}
    return UserNetworks(engine, addresses=AddressRange(whole=IPv4Network(whole)), **settings)


async def test_two_servers_that_start_together_share_one_network():
    engine = Engine()
    networks = make(engine)
    assert set(await asyncio.gather(*(networks.hold("ada", f"main-w{i}") for i in range(8)))) == {"farandole-user-ada"}
    [network] = engine.networks_by_id.values()
    assert network["Aliases"] == {"farandole-hub": ["hub"], "farandole-proxy": ["proxy"]}
    assert network["Labels"] == {HUB_LABEL: "farandole", OWNER_LABEL: "ada"}
    assert network["Options"] == {"com.docker.network.driver.mtu": "1400"}


async def test_a_network_of_another_user_is_refused_with_the_remedy():
    """Both usernames have the same short form, so without the refusal both users' servers would share a network."""
    engine = Engine()
    networks = make(engine)
    await networks.hold(FIRST, "")
    with pytest.raises(ForeignObjectError, match=f"network .* belongs to the user '{FIRST}'.*needs another name"):
        await networks.hold(SECOND, "")
    await networks.release(SECOND, "")
    [network] = engine.networks_by_id.values()
    assert set(network["Containers"]) == set(SERVICES)


async def test_a_network_of_an_earlier_version_has_no_name_and_is_accepted():
    engine = Engine()
    await make(engine).hold("ada", "")
    for network in engine.networks_by_id.values():
        del network["Labels"][OWNER_LABEL]
    assert await make(engine).hold("ada", "main-w0") == "farandole-user-ada"


async def test_each_user_has_a_network_and_a_subnet():
    engine = Engine()
    networks = make(engine)
    await asyncio.gather(*(networks.hold(user, "") for user in ("ada", "grace", "emmy")))
    subnets = {network["IPAM"]["Config"][0]["Subnet"] for network in engine.networks_by_id.values()}
    assert len(engine.networks_by_id) == len(subnets) == 3


async def test_a_subnet_that_the_engine_refuses_is_skipped():
    engine = Engine(routes=["10.213.0.0/26"])
    await make(engine).hold("ada", "")
    [network] = engine.networks_by_id.values()
    assert network["IPAM"]["Config"] == [{"Subnet": "10.213.0.64/26"}]


async def test_a_network_created_concurrently_is_used():
    engine = Engine()
    make_it = engine.create_network

    def another_was_quicker(name, **options):
        make_it(name, **options)
        raise refused(409, f"network with name {name} already exists")

    engine.create_network = another_was_quicker
    await make(engine).hold("ada", "")
    [network] = engine.networks_by_id.values()
    assert set(network["Containers"]) == set(SERVICES)


async def test_a_lack_of_addresses_is_reported_with_the_remedy():
    networks = make(Engine(), "10.213.0.0/26")
    await networks.hold("ada", "")
    with pytest.raises(NetworkError, match="all of it is in use. Set FARANDOLE_SUBNETS"):
        await networks.hold("grace", "")


async def test_the_engines_message_is_in_the_error():
    with pytest.raises(NetworkError, match="Pool overlaps"):
        await make(Engine(routes=["10.213.0.0/16"])).hold("ada", "")


async def test_the_network_is_removed_with_the_last_server():
    engine = Engine()
    networks = make(engine)
    await networks.hold("ada", "")
    await networks.hold("ada", "main-w0")
    await networks.release("ada", "")
    assert engine.networks_by_id
    await networks.release("ada", "main-w0")
    assert not engine.networks_by_id


async def test_after_a_restart_of_the_hub_a_network_with_a_container_is_kept():
    engine = Engine()
    await make(engine).hold("ada", "")
    engine.connect_container_to_network("farandole-ada", "id-0")
    networks = make(engine)
    await networks.release("ada", "main-w0")
    assert engine.networks_by_id


async def test_a_recreated_hub_joins_the_networks_again():
    engine = Engine()
    await make(engine).hold("ada", "")
    engine.disconnect_container_from_network("farandole-hub", "id-0", force=True)
    make(engine).rejoin()
    assert set(engine.networks_by_id["id-0"]["Containers"]) == set(SERVICES)


async def test_a_recreated_proxy_joins_the_networks_while_the_hub_runs():
    engine = Engine()
    networks = make(engine)
    await networks.hold("ada", "")
    engine.disconnect_container_from_network("farandole-proxy", "id-0", force=True)
    await networks.keep_joined(lost=True)
    assert set(engine.networks_by_id["id-0"]["Containers"]) == set(SERVICES)


async def held_and_lost(engine):
    """Create the networks of three users, and disconnect the proxy from them, as if the proxy had been recreated."""
    networks = make(engine)
    for number, user in enumerate(("ada", "grace", "emmy")):
        await networks.hold(user, "")
        engine.disconnect_container_from_network("farandole-proxy", f"id-{number}", force=True)
    return networks


def with_proxy(engine):
    return [key for key, network in engine.networks_by_id.items() if "farandole-proxy" in network["Containers"]]


@pytest.mark.parametrize(
    "error",
    [
        refused(404, "No such container: farandole-proxy"),
        refused(403, "Farandole's engine filter: The container 'farandole-proxy' does not belong to this hub."),
        requests.ConnectionError("the filter restarts"),
    ],
    ids=["no container", "refused by the filter", "no filter"],
)
async def test_a_network_that_cannot_be_joined_is_retried_and_delays_no_other(monkeypatch, caplog, error):
    engine = Engine()
    networks = await held_and_lost(engine)
    connect = engine.connect_container_to_network

    def fail_at_first(container, key, **options):
        if key == "id-0":
            raise error
        connect(container, key, **options)

    monkeypatch.setattr(engine, "connect_container_to_network", fail_at_first)
    networks.rejoin()
    assert with_proxy(engine) == ["id-1", "id-2"]
    assert f"cannot be connected to farandole-user-ada: {getattr(error, 'explanation', error)}" in caplog.text
    await networks.keep_joined(lost=False)
    assert with_proxy(engine) == ["id-1", "id-2"]
    monkeypatch.undo()
    await networks.keep_joined(lost=False)
    assert with_proxy(engine) == ["id-0", "id-1", "id-2"]


async def test_a_failed_list_of_networks_is_retried(monkeypatch):
    engine = Engine()
    networks = await held_and_lost(engine)

    def fail(**_):
        raise requests.ConnectionError("the filter restarts")

    monkeypatch.setattr(engine, "networks", fail)
    networks.rejoin()
    assert with_proxy(engine) == []
    monkeypatch.undo()
    await networks.keep_joined(lost=False)
    assert with_proxy(engine) == ["id-0", "id-1", "id-2"]


async def test_a_connected_container_that_is_not_listed_is_accepted():
    engine = Engine()
    networks = make(engine)
    await networks.hold("ada", "")
    inspect = engine.inspect_network
    engine.inspect_network = lambda key: {**inspect(key), "Containers": {}}
    await networks.hold("ada", "main-w0")


async def test_a_start_that_the_filter_refuses_fails():
    engine = Engine()

    def refuse(*_, **__):
        raise refused(403, "Farandole's engine filter: not admitted")

    engine.connect_container_to_network = refuse
    with pytest.raises(APIError, match="refused"):
        await make(engine).hold("ada", "")


async def test_the_engine_is_not_asked_unless_a_route_is_lost():
    engine = Engine()
    networks = make(engine)
    networks.rejoin()
    await networks.hold("ada", "")
    engine.disconnect_container_from_network("farandole-proxy", "id-0", force=True)
    await networks.keep_joined(lost=False)
    assert with_proxy(engine) == []


STREAMS = {**SERVICES, "farandole-streams": "streams"}


def test_the_nats_server_is_a_service_if_its_profile_is_enabled(monkeypatch):
    monkeypatch.setenv("COMPOSE_PROFILES", "tls")
    assert (services("farandole"), optional_services("farandole")) == (SERVICES, set())
    monkeypatch.setenv("COMPOSE_PROFILES", "tls,streams")
    assert (services("farandole"), optional_services("farandole")) == (STREAMS, {"farandole-streams"})


async def test_servers_start_without_an_optional_service_which_joins_when_it_exists(monkeypatch, caplog):
    engine = Engine()
    networks = make(engine, services=STREAMS, optional={"farandole-streams"})
    connect = engine.connect_container_to_network

    def lack(container, key, **options):
        if container == "farandole-streams":
            raise refused(404, "No such container: farandole-streams")
        connect(container, key, **options)

    monkeypatch.setattr(engine, "connect_container_to_network", lack)
    for user in ("ada", "grace"):
        await networks.hold(user, "")
    await networks.keep_joined(lost=False)
    assert [set(network["Containers"]) for network in engine.networks_by_id.values()] == [set(SERVICES)] * 2
    assert caplog.text.count("There is no container farandole-streams") == 1
    monkeypatch.undo()
    await networks.keep_joined(lost=False)
    for network in engine.networks_by_id.values():
        assert network["Aliases"]["farandole-streams"] == ["streams"]
    await networks.release("ada", "")
    assert [network["Name"] for network in engine.networks_by_id.values()] == ["farandole-user-grace"]


@pytest.mark.parametrize(("routes", "expected"), [({}, True), ({"/user/ada/": 1}, True), ({"/": 1}, False)])
async def test_a_proxy_without_the_hubs_route_gets_its_networks_before_its_routes(monkeypatch, routes, expected):
    done = []

    class Networks:
        async def keep_joined(self, *, lost):
            done.append(lost)

    async def check_routes(*_):
        done.append("routes")

    async def get_all_routes(_):
        return routes

    monkeypatch.setattr(ConfigurableHTTPProxy, "check_routes", check_routes)
    monkeypatch.setattr(NetworkedProxy, "get_all_routes", get_all_routes)
    proxy = type("Proxy", (NetworkedProxy,), {"networks": Networks()})()
    proxy.app = SimpleNamespace(hub=SimpleNamespace(routespec="/"))
    await proxy.check_routes({}, {}, routes)
    await proxy.check_routes({}, {})
    assert done == [expected, "routes"] * 2


@pytest.mark.parametrize("started", [True, False])
async def test_a_nats_server_that_was_started_again_gets_its_networks(monkeypatch, started):
    done = []

    class Networks:
        async def keep_joined(self, *, lost):
            done.append(lost)

    class Watch:
        async def saw_start(self):
            return started

    async def check_routes(*_):
        done.append("routes")

    monkeypatch.setattr(ConfigurableHTTPProxy, "check_routes", check_routes)
    proxy = type("Proxy", (NetworkedProxy,), {"networks": Networks(), "watch": Watch()})()
    proxy.app = SimpleNamespace(hub=SimpleNamespace(routespec="/"))
    await proxy.check_routes({}, {}, {"/": 1})
    assert done == [started, "routes"]


async def test_without_internet_the_network_is_internal():
    engine = Engine()
    await make(engine, internet=False).hold("ada", "")
    assert engine.networks_by_id["id-0"]["Internal"]
    assert engine.networks_by_id["id-0"]["Options"][NO_ADDRESS_OPTION] == "true"


async def test_with_internet_the_network_is_not_internal():
    engine = Engine()
    await make(engine).hold("ada", "")
    assert not engine.networks_by_id["id-0"]["Internal"]
    assert NO_ADDRESS_OPTION not in engine.networks_by_id["id-0"]["Options"]
