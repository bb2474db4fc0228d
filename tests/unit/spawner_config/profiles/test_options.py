from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from farandole.server.worker.args import WORKER_ARGS
from tornado.web import HTTPError

from spawner_config.form import options_form, options_from_form
from spawner_config.gpus.model import GpuRequest
from spawner_config.gpus.pool import GpuPool
from spawner_config.profiles.options import NOTEBOOK_ARGS, OptionsError, OptionsHook, plan_server
from spawner_config.profiles.profiles import parse_profiles
from spawner_config.roles import ENDPOINT_SCOPES, NOTEBOOK_SCOPES, WORKER_SCOPES, role_of, server_token_scopes

PROFILE_SET = parse_profiles(
    {
        "limits": {"workers_per_user": 2, "ranks_per_worker": 4},
        "profile": [
            {"name": "cpu", "description": "<b>plain</b>"},
            {"name": "pair", "description": "two", "ranks": 2, "cpus": 2, "memory": "1G"},
        ],
    }
)


def spawner(name: str, *, active: tuple[str, ...] = ()) -> Any:
    servers = {other: SimpleNamespace(active=True) for other in active}
    servers["old-w0"] = SimpleNamespace(active=False)
    return SimpleNamespace(name=name, user=SimpleNamespace(spawners=servers), user_options={})


@pytest.mark.parametrize(
    ("name", "role"),
    [
        *((name, "worker") for name in ("digits-w0", "a-b-w12", "serve-iris-w2", "serve-w0")),
        *((name, "endpoint") for name in ("serve-iris", "serve-a", "serve-iris-w", "serve-a-b-2")),
        *((name, "notebook") for name in ("", "digits", "digits-w", "-w0", "serve", "serve-", "serve-a-", "Serve-a")),
    ],
)
def test_the_servers_name_determines_its_role_and_scopes(name: str, role: str) -> None:
    scopes = {"worker": WORKER_SCOPES, "endpoint": ENDPOINT_SCOPES, "notebook": NOTEBOOK_SCOPES}
    assert role_of(name) == role
    assert server_token_scopes(spawner(name)) == scopes[role]


def test_a_worker_gets_its_cluster_profile_and_ranks() -> None:
    plan = plan_server(PROFILE_SET, "digits-w1", {"role": "worker", "profile": "pair", "cluster": "digits"})
    assert plan.args == WORKER_ARGS
    assert plan.environment["FARANDOLE_CLUSTER"] == "digits"
    assert plan.environment["FARANDOLE_WORKER"] == "digits-w1"
    assert plan.environment["FARANDOLE_PROFILE"] == "pair"
    assert plan.environment["FARANDOLE_RANKS"] == "2"
    assert plan.environment["OMP_NUM_THREADS"] == "1"
    assert plan.environment["FARANDOLE_CLUSTER_BACKEND"] == ""


def test_a_worker_keeps_the_backend_for_drivers_that_attach() -> None:
    plan = plan_server(PROFILE_SET, "digits-w1", {"role": "worker", "backend": "torch"})
    assert plan.environment["FARANDOLE_CLUSTER_BACKEND"] == "torch"


def test_a_notebook_server_gets_the_profiles_and_limits() -> None:
    plan = plan_server(PROFILE_SET, "", {})
    assert plan.args == NOTEBOOK_ARGS
    assert [each["name"] for each in json.loads(plan.environment["FARANDOLE_PROFILES"])] == ["cpu", "pair"]
    assert json.loads(plan.environment["FARANDOLE_LIMITS"])["workers_per_user"] == 2


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("notebook", {"role": "worker"}, "cannot have the role 'worker'"),
        ("", {"role": "worker"}, "cannot have the role 'worker'"),
        ("digits-w0", {}, "cannot have the role 'notebook'"),
        ("digits-w0", {"role": "admin"}, "cannot have the role 'admin'"),
        ("digits-w0", {"role": "worker", "profile": "big"}, "Choose one of: cpu, pair"),
        ("digits-w0", {"role": "worker", "profile": ["cpu"]}, "Choose one of: cpu, pair"),
        ("digits-w0", {"role": "worker", "cluster": "other"}, "by its name"),
        ("digits-w0", {"role": "worker", "ranks": 5}, "allows 1 to 4"),
        ("digits-w0", {"role": "worker", "ranks": 0}, "allows 1 to 4"),
        ("digits-w0", {"role": "worker", "ranks": "2"}, "allows 1 to 4"),
        ("digits-w0", {"role": "worker", "backend": "mpi"}, "no backend 'mpi'. Choose one of: horovod, torch, none"),
        ("digits-w0", {"role": "worker", "cmd": "sh"}, "no server option 'cmd'"),
        ("", {"profile": "big"}, "Choose one of: cpu, pair"),
    ],
)
def test_a_refusal_has_a_reason(name: str, options: dict[str, Any], reason: str) -> None:
    hook = OptionsHook(PROFILE_SET, python="python3", environment={}, args=[])
    with pytest.raises(HTTPError) as error:
        hook(spawner(name), options)
    assert error.value.status_code == 400
    assert reason in str(error.value)


ENDPOINT_PROFILES = parse_profiles(
    {
        "limits": {"endpoints_per_user": 2},
        "gpu": [{"id": "0", "class": "big"}],
        "profile": [
            {"name": "gpu", "description": "one GPU", "gpus": 1, "gpu_class": "big"},
            {"name": "cpu", "description": "no GPU"},
            {"name": "pair", "description": "no GPU", "ranks": 2},
        ],
    }
)
SERVED = {"role": "endpoint", "profile": "cpu", "model": "vision/iris:3", "runtime": "onnx"}
COMMAND = {"role": "endpoint", "command": ["python", "app.py", "--port", "{port}"]}


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("iris", SERVED, "cannot have the role 'endpoint'"),
        ("serve-iris-w2", SERVED, "cannot have the role 'endpoint'"),
        ("serve-", SERVED, "cannot have the role 'endpoint'"),
        ("serve-iris", {}, "cannot have the role 'notebook'"),
        ("serve-iris", {**SERVED, "role": "worker"}, "cannot have the role 'worker'"),
        ("serve-iris", {**SERVED, "ranks": 2}, "no server option 'ranks' here. Known options: role, profile, wait"),
        ("serve-iris", {**SERVED, "wait": "yes"}, "It must be true or false"),
        ("serve-iris", {**SERVED, "profile": "big"}, "Choose one of: gpu, cpu, pair"),
        ("serve-iris", {**SERVED, "command": ["app"]}, "one of the options model, command, model_image"),
        ("serve-iris", {"role": "endpoint", "profile": "cpu"}, "one of the options model, command, model_image"),
        ("serve-iris", {**SERVED, "runtime": "tflite"}, "no runtime 'tflite'. Choose one of: onnx, torch"),
        ("serve-iris", {**SERVED, "runtime": None}, "no runtime None. Choose one of: onnx, torch"),
        ("serve-iris", {**SERVED, "model": "iris"}, "It must have a version, such as iris:3"),
        ("serve-iris", {**SERVED, "model": "iris:latest"}, "It must have a version, such as iris:3"),
        ("serve-iris", {**SERVED, "model": "iris:0"}, "'0' in 'iris:0' is not a version"),
        ("serve-iris", {**SERVED, "model": "../iris:1"}, "'../iris' cannot be the name of a model"),
        ("serve-iris", {**SERVED, "model": ["iris"]}, "cannot be the name of a model"),
        ("serve-iris", {**COMMAND, "command": []}, "must be a list of words, such as ['python', 'app.py']"),
        ("serve-iris", {**COMMAND, "command": "python app.py"}, "must be a list of words"),
        ("serve-iris", {**COMMAND, "command": ["python", ""]}, "must be a list of words"),
        ("serve-iris", {**COMMAND, "command": ["python", 3]}, "must be a list of words"),
        ("serve-iris", {**COMMAND, "model_image": "a.b/iris:3"}, "one of the options model, command, model_image"),
        ("serve-iris", {"role": "endpoint", "profile": "cpu", "model_image": "a.b/iris:3"}, "run no images"),
        ("serve-iris", {**SERVED, "from": "calls"}, "has the options 'from' and 'to', which are texts"),
        ("serve-iris", {**SERVED, "from": "calls", "to": 3}, "has the options 'from' and 'to', which are texts"),
        ("serve-iris", {**SERVED, "credentials": "a.creds"}, "has the options 'from' and 'to', which are texts"),
        ("serve-iris", {**SERVED, "from": "a b", "to": "c"}, "is not a subject of NATS"),
        ("serve-iris", {**SERVED, "from": "nats://a:b@c/d", "to": "nats://c/e"}, "contains a name or a password"),
        ("serve-iris", {**COMMAND, "from": "calls", "to": "to"}, "A command does not score records"),
        ("serve-iris", {**SERVED, "profile": "gpu"}, "The profile 'gpu' has GPUs, and endpoints with a model compute"),
        ("serve-iris", {**SERVED, "profile": "gpu"}, "Choose another with `--profile`: cpu, pair. A server of yours"),
        ("serve-iris", {key: SERVED[key] for key in ("role", "model", "runtime")}, "The profile 'gpu' has GPUs"),
    ],
)
def test_a_refused_endpoint_has_a_reason(name: str, options: dict[str, Any], reason: str) -> None:
    hook = OptionsHook(ENDPOINT_PROFILES, python="python3", environment={}, args=[])
    with pytest.raises(HTTPError) as error:
        hook(spawner(name), options)
    assert error.value.status_code == 400
    assert reason in str(error.value)


LAB_IRIS = "registry.example.org/lab/iris:3"
IMAGE = {"role": "endpoint", "profile": "cpu", "model_image": LAB_IRIS}


@pytest.mark.parametrize(
    ("admitted", "image", "reason"),
    [
        ((), LAB_IRIS, "It runs none; the administrator can add it to FARANDOLE_MODEL_IMAGES"),
        (("registry.example.org/*",), LAB_IRIS, "It runs registry.example.org/*; the administrator can add it"),
        (("registry.example.org/lab/*",), "registry.example.org/other/iris:3", "does not run the image"),
        (("registry.example.org/lab/*",), [LAB_IRIS], "does not run the image"),
        (("registry.example.org/lab/*",), f"{LAB_IRIS} --privileged", "does not run the image"),
        (("registry.example.org/lab/*",), f"{LAB_IRIS}\n", "does not run the image"),
        (("registry.example.org/lab/*",), "registry.example.org/lab/", "does not run the image"),
        (("registry.example.org/*/*",), "registry.example.org/../iris", "does not run the image"),
    ],
)
def test_an_image_that_is_not_admitted_is_refused(admitted: tuple[str, ...], image: Any, reason: str) -> None:
    hook = OptionsHook(ENDPOINT_PROFILES, python="python3", environment={}, args=[], model_images=admitted)
    with pytest.raises(HTTPError, match=re.escape(reason)):
        hook(spawner("serve-iris"), {**IMAGE, "model_image": image})


def test_an_endpoint_with_an_admitted_image_serves_the_only_model_in_it() -> None:
    hook = OptionsHook(
        ENDPOINT_PROFILES, python="python3", environment={}, args=[], model_images=("registry.example.org/lab/*",)
    )
    one = spawner("serve-iris")
    hook(one, IMAGE)
    assert one.model_image == LAB_IRIS
    assert (one.cmd, one.args) == (["python3", "-m", "farandole.serving"], [])
    assert one.environment["FARANDOLE_MODELS"] == "/models"
    hook(one, SERVED)
    assert one.model_image == ""


def test_without_a_profile_without_gpus_the_administrator_must_add_one() -> None:
    only = {"name": "gpu", "description": "GPUs", "gpus": 2, "gpu_class": "big"}
    profiles = parse_profiles({"gpu": [{"id": name, "class": "big"} for name in "01"], "profile": [only]})
    with pytest.raises(OptionsError, match="All profiles of this hub have GPUs.*Ask the administrator for a profile"):
        plan_server(profiles, "serve-iris", {**SERVED, "profile": "gpu"})


def test_an_endpoint_serves_a_version_or_runs_a_command() -> None:
    plan = plan_server(ENDPOINT_PROFILES, "serve-iris", SERVED)
    assert (plan.module, plan.args, plan.runtime) == ("farandole.serving", ["vision/iris:3"], "onnx")
    plan = plan_server(ENDPOINT_PROFILES, "serve-app", COMMAND)
    assert (plan.module, plan.args) == ("farandole.serving.command", ["--", *COMMAND["command"]])
    assert (plan.runtime, plan.profile.gpus) == ("", 1)


def test_an_endpoint_gets_its_stream_as_arguments() -> None:
    stream = {"from": "calls", "to": "decisions.{label}", "credentials": "-x/nats.creds"}
    words = ["--from=calls", "--to=decisions.{label}", "--credentials=-x/nats.creds"]
    assert plan_server(ENDPOINT_PROFILES, "serve-iris", {**SERVED, **stream}).args == ["vision/iris:3", *words]
    images = ["registry.example.org/lab/*"]
    plan = plan_server(ENDPOINT_PROFILES, "serve-iris", {**IMAGE, "from": "calls", "to": "to"}, model_images=images)
    assert plan.args == ["--from=calls", "--to=to"]
    with pytest.raises(OptionsError, match="An endpoint with an image has no files of its user"):
        plan_server(ENDPOINT_PROFILES, "serve-iris", {**IMAGE, **stream}, model_images=images)


def test_the_limit_counts_other_active_endpoints() -> None:
    hook = OptionsHook(ENDPOINT_PROFILES, python="python3", environment={}, args=["--flag"])
    asked = spawner("serve-iris", active=("serve-iris", "serve-a", "a-w0", ""))
    hook(asked, SERVED)
    # The arguments of Jupyter servers are not those of an endpoint.
    assert asked.args == ["vision/iris:3"]
    with pytest.raises(HTTPError, match="You have 2 endpoints and this hub allows 2 for each user"):
        hook(spawner("serve-iris", active=("serve-a", "serve-b")), SERVED)


def test_the_limit_counts_other_active_workers() -> None:
    hook = OptionsHook(PROFILE_SET, python="python3", environment={}, args=[])
    hook(spawner("a-w1", active=("a-w0", "a-w1", "")), {"role": "worker"})
    with pytest.raises(HTTPError, match="allows 2 for each user"):
        hook(spawner("a-w2", active=("a-w0", "a-w1")), {"role": "worker"})


def test_the_limit_counts_other_active_notebooks() -> None:
    hook = OptionsHook(PROFILE_SET, python="python3", environment={}, args=[])
    hook(spawner("d", active=("", "b", "d", "a-w0")), {})
    with pytest.raises(HTTPError, match="You have 3 notebook servers and this hub allows 3"):
        hook(spawner("d", active=("", "b", "c")), {})


def test_a_too_large_cluster_is_refused_at_its_first_worker() -> None:
    hook = OptionsHook(PROFILE_SET, python="python3", environment={}, args=[])
    hook(spawner("a-w0"), {"role": "worker", "workers": 2})
    hook(spawner("a-w1", active=("a-w0",)), {"role": "worker", "workers": 2})
    with pytest.raises(HTTPError, match="That makes 3 workers"):
        hook(spawner("a-w0"), {"role": "worker", "workers": 3})
    with pytest.raises(HTTPError, match="That makes 3 workers"):
        hook(spawner("b-w0", active=("a-w0",)), {"role": "worker", "workers": 2})


def test_a_second_start_does_not_keep_the_options_of_the_first() -> None:
    hook = OptionsHook(PROFILE_SET, python="python3", environment={"PATH": "/bin"}, args=["--flag"])
    server = spawner("")
    hook(server, {"profile": "pair"})
    assert (server.mem_limit, server.cpu_limit, server.environment["OMP_NUM_THREADS"]) == ("1G", 2, "2")
    hook(server, {"profile": "cpu"})
    assert (server.mem_limit, server.cpu_limit) == (None, None)
    assert server.args == ["--flag", *NOTEBOOK_ARGS]
    assert server.environment["PATH"] == "/bin"
    assert "OMP_NUM_THREADS" not in server.environment


def test_the_form_escapes_and_marks_the_default() -> None:
    form = options_form(PROFILE_SET, spawner(""), memory="4G")
    assert 'value="cpu" checked' in form
    assert "&lt;b&gt;plain" in form
    assert "1 rank per worker · no CPU limit · 4 GiB memory" in form
    assert "2 ranks per worker · 2 CPUs · 1 GiB memory" in form
    assert options_from_form({"profile": ["pair"], "_xsrf": ["x"]}) == {"profile": "pair"}
    assert options_from_form({}) == {}


def test_the_form_promises_no_memory_limit_where_servers_have_none() -> None:
    form = options_form(PROFILE_SET, spawner(""))
    assert "2 ranks per worker · 2 CPUs · no memory limit" in form
    assert "GiB memory" not in form


def test_the_form_shows_that_the_last_profile_no_longer_exists() -> None:
    asked = spawner("")
    asked.user_options = {"profile": "<big>"}
    form = options_form(PROFILE_SET, asked)
    assert "Your last server had the profile &lt;big&gt;, which no longer exists" in form
    assert 'value="cpu" checked' in form
    assert "no longer exists" not in options_form(PROFILE_SET, spawner(""))


async def test_the_form_shows_the_number_of_free_gpus() -> None:
    profile_set = parse_profiles(
        {
            "gpu": [{"id": "0", "class": "big"}, {"id": "1", "class": "big"}],
            "profile": [{"name": "gpu", "description": "one GPU", "gpus": 1, "gpu_class": "big"}],
        }
    )
    pool = GpuPool(profile_set.gpus)
    asked = spawner("")
    assert "wait" not in options_form(profile_set, asked)
    asked.gpu_pool = pool
    await pool.acquire(GpuRequest(user="alice", server="", count=1))
    form = options_form(profile_set, asked)
    assert "1 GPU big · 1 of 2 free" in form
    assert 'name="wait" value="yes">' in form
    assert options_from_form({"profile": ["gpu"], "wait": ["yes"]}) == {"profile": "gpu", "wait": True}
    asked.user_options = {"wait": True}
    assert 'value="yes" checked' in options_form(profile_set, asked)


def test_the_hook_sets_the_gpus_of_the_spawner() -> None:
    hook = OptionsHook(PROFILE_SET, python="python", environment={}, args=[])
    asked = spawner("")
    hook(asked, {"profile": "cpu", "wait": True})
    assert (asked.gpus, asked.gpu_class, asked.wait_for_gpus) == (0, None, True)
    worker = spawner("digits-w0")
    for together in (0, True, "2"):
        with pytest.raises(HTTPError, match="at least 1"):
            hook(worker, {"role": "worker", "together": together})
    with pytest.raises(HTTPError, match="must be true or false"):
        hook(asked, {"profile": "cpu", "wait": "yes"})


def test_a_deployment_may_refuse_a_server_with_a_reason() -> None:
    def finish(_spawner: Any, _profile: Any) -> None:
        raise OptionsError("This hub has no image for that.\nAsk the administrator.")

    hook = OptionsHook(PROFILE_SET, python="python3", environment={}, args=[], finish=finish)
    with pytest.raises(HTTPError, match="no image for that") as caught:
        hook(spawner(""), {})
    assert (caught.value.status_code, caught.value.reason) == (
        400,
        "This hub has no image for that. Ask the administrator.",
    )


def test_a_worker_runs_the_lean_server_and_a_notebook_the_full_one() -> None:
    hook = OptionsHook(PROFILE_SET, python="python3", environment={}, args=[])
    worker, notebook = spawner("a-w0"), spawner("")
    hook(worker, {"role": "worker"})
    hook(notebook, {})
    assert worker.cmd == ["python3", "-m", "farandole.server.worker"]
    assert notebook.cmd == ["python3", "-m", "farandole.server.single_user"]
