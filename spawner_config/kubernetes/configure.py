"""Configures the deployment on Kubernetes, with a pod for the hub, for the proxy and for each server."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from farandole.datasets.versions.publish import AT_HUB
from jupyterhub.slugs import safe_slug

from spawner_config.deployment import HOME, RUNTIME, Front, configure_proxied_hub
from spawner_config.form import options_form
from spawner_config.kubernetes.pod_volumes import VolumePlan
from spawner_config.kubernetes.pods import WAIT_SECONDS, FarandoleKubeSpawner
from spawner_config.kubernetes.profiles import PodNeeds
from spawner_config.kubernetes.settings import KubernetesSettings, host_of, service_url
from spawner_config.labels import CLUSTER_LABEL, HUB_LABEL, USER_LABEL
from spawner_config.operators.configure import PORT as OPERATORS_PORT
from spawner_config.operators.configure import configure_operators
from spawner_config.origins.hosts import DEFAULT_PORTS, is_local
from spawner_config.profiles.options import OptionsHook
from spawner_config.publishing.configure import configure_publishing
from spawner_config.publishing.pods import ClaimStore
from spawner_config.publishing.settings import Publishers
from spawner_config.quotas.sizes import CLAIM_BYTES, quantity
from spawner_config.roles import is_endpoint, is_worker
from spawner_config.snapshots.configure import configure_snapshots
from spawner_config.snapshots.settings import PORT as SNAPSHOTS_PORT
from spawner_config.streams.configure import configure_streams
from spawner_config.streams.settings import SECRET, StreamSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spawner_config.profiles.profiles import Profile, ProfileSet
    from spawner_config.settings import Settings

USER_ID = 1000
CPU_REQUEST = 0.1
"""The CPU request, in cores, of a server whose profile does not limit CPUs."""
SCRATCH = "ephemeral-storage"
SCRATCH_REQUEST_MI = 256
"""The request for local disk space in MiB. Without it, Kubernetes would reserve the full limit for each server."""
STOP_SECONDS = 5
END_SECONDS = 10
"""The grace period in seconds in which a drained or preempted worker can save its journals."""
GONE_NODE_SECONDS = 30
"""How many seconds a server stays on a node that is not ready or unreachable; the default of Kubernetes is 300."""
START_SECONDS = 1200
"""The time limit for a start in seconds, which includes pulling the image at the first start on a node."""
QUEUE_SECONDS = 7 * 24 * 3600
DNS_OPTIONS = {"ndots": "2", "timeout": "2", "attempts": "2"}
"""Limits on DNS lookups. torch looks up the name of each address to which it connects, and a lookup that gets no answer
should fail soon."""
ACCESS_LABELS = {"hub.jupyter.org/network-access-hub": "true", "hub.jupyter.org/network-access-proxy-http": "true"}
"""Labels that give pods access to the hub and the proxy under the network policies of Zero to JupyterHub. The policies
in hub/kubernetes/base/networks.yaml use only the label for the hub."""
QUEUE_NAME = "kueue.x-k8s.io/queue-name"
QUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
QUEUE_COUNT = "kueue.x-k8s.io/pod-group-total-count"


def configure(c: Any, settings: Settings, profile_set: ProfileSet) -> None:
    """Configure a hub in a pod, with the proxy in another pod."""
    deployment = KubernetesSettings.from_environment(os.environ)
    hub_url = service_url(os.environ, "hub", "FARANDOLE_HUB_ADDRESS")
    configure_proxied_hub(
        c,
        settings,
        hub_url=hub_url,
        proxy_api=service_url(os.environ, "proxy-api", "FARANDOLE_PROXY_API_ADDRESS"),
        token="CONFIGPROXY_AUTH_TOKEN of the Secret proxy-token",
        front=front(settings, deployment),
    )
    host = host_of(hub_url)
    at = f"http://{host}:{OPERATORS_PORT}"
    configure_operators(c, settings, profile_set, url=at, bind="", memory=deployment.memory)
    configure_snapshots(c, settings, url=f"http://{host}:{SNAPSHOTS_PORT}", bind="")
    configure_servers(c, deployment, profile_set, proxy=service_url(os.environ, "proxy", "FARANDOLE_PROXY_ADDRESS"))
    configure_publishing(c, deployment, ClaimStore(deployment))
    if os.environ.get(SECRET):
        streams = service_url(os.environ, "streams", "FARANDOLE_STREAMS_ADDRESS").replace("http:", "tls:")
        configure_streams(c, StreamSettings.from_environment(os.environ), hub_url=streams, users_url=streams)


def front(settings: Settings, deployment: KubernetesSettings) -> Front:
    """Return how browsers reach the hub: by an Ingress, a load balancer, or a port forwarded to their own machine."""
    usual = DEFAULT_PORTS["https" if deployment.https else "http"]
    forwarded = not deployment.https and is_local(settings.public_domain)
    return Front(
        https=deployment.https,
        port=deployment.public_port or (settings.port if forwarded else usual),
        reached_by="FARANDOLE_HTTPS=yes" if deployment.https else "",
    )


def configure_servers(c: Any, deployment: KubernetesSettings, profile_set: ProfileSet, *, proxy: str) -> None:
    """Configure users' servers; ``proxy`` is the URL at which they reach the hub's proxy."""
    deployment.check_data(profile_set)
    needs = {profile.name: PodNeeds.of(profile) for profile in profile_set.profiles}
    publishers = Publishers.from_environment(os.environ)

    def finish(spawner: Any, profile: Profile) -> None:
        set_profile(deployment, needs[profile.name], spawner, profile)
        spawner.environment = {**spawner.environment, **publishers.variables(spawner, AT_HUB)}

    c.JupyterHub.spawner_class = FarandoleKubeSpawner
    # `FarandoleKubeSpawner.concurrent_starts` replaces this limit, which would also count servers in a queue.
    c.JupyterHub.concurrent_spawn_limit = 0
    configure_pods(c, deployment)
    c.Spawner.options_form = partial(options_form, profile_set, memory=deployment.memory)
    c.Spawner.poll_interval = 3
    c.Spawner.apply_user_options = OptionsHook(
        profile_set,
        python="python",
        # A driver must wait longer than the hub does. Otherwise, it would give up before it receives the scheduler's
        # reason.
        environment={
            "FARANDOLE_HUB_URL": proxy,
            "FARANDOLE_START_SECONDS": str(start_seconds(deployment, waits=True)),
            **RUNTIME,
            **deployment.serving_images,
        },
        args=[],
        model_images=deployment.model_images,
        finish=finish,
    )


def start_seconds(deployment: KubernetesSettings, *, waits: bool = False) -> int:
    """Return the time limit of a start outside a queue, in seconds: to find a node, and then to pull the image."""
    return START_SECONDS + (max(int(WAIT_SECONDS), deployment.place_seconds) if waits else deployment.place_seconds)


def configure_pods(c: Any, deployment: KubernetesSettings) -> None:
    """Configure the pod of every server."""
    pods = c.FarandoleKubeSpawner
    pods.hub_name = deployment.name
    pods.place_seconds = deployment.place_seconds
    pods.pod_name_template = f"{deployment.name}-{{user_server}}"
    pods.notebook_dir = HOME
    pods.image_pull_policy = "IfNotPresent"
    pods.image_pull_secrets = list(deployment.pull_secrets)
    pods.delete_grace_period = STOP_SECONDS
    pods.automount_service_account_token = False
    pods.uid = pods.gid = pods.fs_gid = USER_ID
    pods.pod_security_context = {"fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"}}
    pods.container_security_context = {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}}
    pods.allow_privilege_escalation = False
    pods.extra_pod_config = {
        # Do not restart the container, because the new process would have lost the state. The user or the driver starts
        # a new server instead.
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": END_SECONDS,
        "dnsConfig": {"options": [{"name": name, "value": value} for name, value in DNS_OPTIONS.items()]},
    }
    pods.storage_pvc_ensure = True
    pods.delete_pvc = False
    pods.pvc_name_template = f"{deployment.name}-home-{{username}}"
    pods.storage_capacity = quantity(deployment.home_size.all or CLAIM_BYTES)
    pods.storage_access_modes = [deployment.home_access]
    if deployment.home_class:
        pods.storage_class = deployment.home_class


def set_profile(deployment: KubernetesSettings, needs: PodNeeds, spawner: Any, profile: Profile) -> None:
    """Apply a profile to a server's spawner.

    This function only assigns attributes and never extends them, because the hub reuses the spawner for the next start.
    """
    spawner.image = deployment.image_of(profile, spawner.runtime, spawner.model_image)
    spawner.mem_limit = profile.memory or deployment.memory
    spawner.mem_guarantee = needs.memory_request or spawner.mem_limit
    spawner.cpu_guarantee = needs.cpu_request or profile.cpus or CPU_REQUEST
    gpus = {deployment.gpu_resource: str(profile.gpus)} if profile.gpus else {}
    scratch = needs.scratch or deployment.scratch
    spawner.extra_resource_limits = {**gpus, SCRATCH: scratch}
    spawner.extra_resource_guarantees = {SCRATCH: scratch_request(scratch)}
    spawner.priority_class_name = priority_of(spawner.name, needs, deployment)
    place_pod(deployment, needs, spawner, profile)
    plan = VolumePlan.of(
        deployment.shares, spawner, profile, shared_memory=needs.shared_memory, hub=deployment.name, home=HOME
    )
    spawner.volumes, spawner.volume_mounts = plan.volumes, plan.mounts
    # The hub creates a claim once. A claim that exists keeps its size.
    spawner.storage_capacity = quantity(deployment.home_size.of_spawner(spawner) or CLAIM_BYTES)
    spawner.environment = {**spawner.environment, **deployment.shares.variables_of(profile.data)}
    spawner.start_timeout = QUEUE_SECONDS if needs.queue else start_seconds(deployment, waits=spawner.wait_for_gpus)
    own = {HUB_LABEL: deployment.name, USER_LABEL: safe_slug(spawner.user.name)}
    queue = queue_labels(needs.queue, own[USER_LABEL], spawner.name, spawner.user_options)
    spawner.extra_labels = {**deployment.pod_labels, **ACCESS_LABELS, **own, **cluster_label(spawner.name), **queue}
    spawner.extra_annotations = {QUEUE_COUNT: str(spawner.user_options["together"])} if QUEUE_GROUP in queue else {}


def priority_of(server: str, needs: PodNeeds, deployment: KubernetesSettings) -> str:
    """Return the PriorityClass of a server. Endpoints have that of their profile, or else that of notebook servers.

    A training job with priority must not preempt a notebook server, because the driver on that server may control other
    jobs.
    """
    if is_worker(server):
        return needs.priority or ""
    return (needs.priority if is_endpoint(server) else None) or deployment.notebook_priority or ""


def scratch_request(limit: str) -> str:
    """Return the ephemeral storage to request: at most the limit, because the API server refuses larger requests."""
    amount, unit = limit[:-2], limit[-2:]
    return f"{min(int(amount), SCRATCH_REQUEST_MI)}Mi" if unit == "Mi" else f"{SCRATCH_REQUEST_MI}Mi"


def place_pod(deployment: KubernetesSettings, needs: PodNeeds, spawner: Any, profile: Profile) -> None:
    """Set the nodes that the pod requires, prefers and tolerates."""
    kind = {deployment.gpu_class_label: profile.gpu_class} if profile.gpu_class else {}
    spawner.node_selector = {**kind, **needs.node_selector}
    spawner.node_affinity_preferred = needs.preferred()
    gone = [
        {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute"}
        for state in ("not-ready", "unreachable")
    ]
    # Many clusters use this taint to keep pods that need no GPU away from nodes with GPUs.
    gpus = [{"key": deployment.gpu_resource, "operator": "Exists"}] if profile.gpus else []
    spawner.tolerations = [
        *gpus,
        *needs.tolerated(),
        *({**each, "tolerationSeconds": GONE_NODE_SECONDS} for each in gone),
    ]
    siblings = {USER_LABEL: safe_slug(spawner.user.name), **cluster_label(spawner.name)}
    worker = is_worker(spawner.name)
    spawner.pod_affinity_preferred = needs.near(siblings) if worker else []
    spawner.pod_anti_affinity_preferred = needs.far(siblings) if worker else []


def cluster_label(server: str) -> dict[str, str]:
    """Return the label with a worker's cluster, or no label for a notebook server."""
    return {CLUSTER_LABEL: safe_slug(server.rpartition("-w")[0])} if is_worker(server) else {}


def queue_labels(queue: str | None, user: str, server: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels that put a pod into a queue of Kueue, or no labels if ``queue`` is None.

    Workers that are started together form a group, which Kueue admits as a whole. A worker that is added later or that
    replaces a lost worker waits alone, because a group cannot grow.
    """
    if queue is None:
        return {}
    together = options.get("together", 1)
    if not is_worker(server) or together < 2 or together != options.get("workers"):
        return {QUEUE_NAME: queue}
    return {QUEUE_NAME: queue, QUEUE_GROUP: safe_slug(f"{user}--{server.rpartition('-w')[0]}")}
