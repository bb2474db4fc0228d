"""Tests for `%serve` in a real IPython shell, with a fake hub and fake endpoints."""

import asyncio

import pytest
from aiohttp import web
from farandole.exceptions import EndpointError, EndpointExistsError, EndpointNotFoundError, ModelError, UsageError
from farandole.models.model import PROGRAM_FILE, WEIGHTS_FILE, ModelInfo
from farandole.models.names import ModelName
from farandole.notebook.serving.magics import ServingMagics
from farandole.notebook.serving.tables import ENDPOINTS_HEAD, STREAM_HEAD
from IPython.core.interactiveshell import InteractiveShell

from tests.unit.driver.endpoints.test_client import EndpointHub, streaming
from tests.unit.driver.workers.test_source import TOKEN, served
from tests.unit.notebook.serving.test_models_magic import save


class SharingHub(EndpointHub):
    """A fake hub that makes tokens and shares. `asked_about` has these requests, and `users` has the shares."""

    def __init__(self):
        super().__init__()
        self.asked_about = []
        self.users = {}

    def application(self):
        app = super().application()
        where = "/hub/api/farandole/users/ada/servers/{name}"
        app.router.add_post(f"{where}/tokens", self.make_token)
        app.router.add_get(f"{where}/shares", self.get_shares)
        app.router.add_route("*", f"{where}/shares/{{user}}", self.change_shares)
        return app

    async def make_token(self, request):
        self.asked_about.append((request.match_info["name"], await request.json()))
        return web.json_response({"token": "for callers"}, status=201)

    async def get_shares(self, request):
        return web.json_response({"users": sorted(self.users.get(request.match_info["name"], ()))})

    async def change_shares(self, request):
        name, user = request.match_info["name"], request.match_info["user"]
        change = {"PUT": set.add, "DELETE": set.discard}[request.method]
        change(self.users.setdefault(name, set()), user)
        return web.Response(status=204)


@pytest.fixture
def hub():
    return SharingHub()


@pytest.fixture(scope="module")
def shell():
    shell = InteractiveShell()
    yield shell
    shell.history_manager.end_session()


@pytest.fixture
async def serve(shell, hub, model_store, monkeypatch):
    """A function that runs `%serve` with a line, in another thread than the fake hub."""
    magics = ServingMagics(shell)
    async with served(hub.application()) as url:
        monkeypatch.setenv("FARANDOLE_HUB_URL", url)
        monkeypatch.setenv("JUPYTERHUB_API_TOKEN", TOKEN)
        yield lambda line: asyncio.to_thread(magics.serve, line)


async def test_without_endpoints_the_list_says_how_to_start_one(serve, hub):
    hub.servers.clear()
    assert repr(await serve("")) == "no endpoint runs; `%serve MODEL` starts one"
    for line in ("stop", "token", "share grace"):
        with pytest.raises(EndpointNotFoundError, match=r"no endpoint is running. Start one with `%serve MODEL:VER"):
            await serve(line)


async def test_endpoints_are_listed_with_their_figures(serve, hub):
    hub.servers["serve-app"] = {"ready": False, "url": "/user/ada/serve-app/", "user_options": {
        "role": "endpoint", "command": ["python", "app.py"],
    }}  # fmt: skip
    listed = await serve("list")
    assert listed.rows == [
        ("app", "python app.py", "starting or stopping", "-", "-", "-", "/user/ada/serve-app/"),
        ("iris", "iris:4", "ready", "2.5", "1", "8.5 ms", "/user/ada/serve-iris/"),
    ]


async def test_an_endpoint_that_does_not_answer_is_listed_without_a_version(serve, hub):
    hub.response = lambda: web.Response(status=502)
    assert (await serve("list")).rows == [("iris", "iris", "ready", "-", "-", "-", "/user/ada/serve-iris/")]


async def test_an_image_is_listed_until_its_endpoint_names_the_model(serve, hub):
    image = "registry.example.org/lab/iris:4"
    hub.servers["serve-iris"]["user_options"] = {"role": "endpoint", "model_image": image}
    assert (await serve("list")).rows[0][:3] == ("iris", "iris:4", "ready")
    hub.response = lambda: web.Response(status=502)
    assert (await serve("list")).rows[0][:3] == ("iris", image, "ready")


async def test_only_endpoints_with_a_stream_add_its_columns(serve, hub):
    assert (await serve("list")).head == ENDPOINTS_HEAD
    hub.servers["serve-app"] = {"ready": True, "url": "/user/ada/serve-app/", "user_options": {
        "role": "endpoint", "command": ["python", "app.py"],
    }}  # fmt: skip
    hub.response = streaming()
    listed = await serve("list")
    assert listed.head == ENDPOINTS_HEAD + STREAM_HEAD
    assert [row[len(ENDPOINTS_HEAD) :] for row in listed.rows] == [
        ("-",) * 6,
        ("nats:///calls", "nats:///decisions.{label}", "12", "812.4", "3", "-"),
    ]


async def test_the_problem_of_a_stream_is_listed(serve, hub):
    hub.response = streaming(lag=None, records_per_second=0, problem="the broker does not answer; <b>trying again</b>")
    listed = await serve("list")
    assert listed.rows[0][-4:] == ("-", "0.0", "3", "the broker does not answer; <b>trying again</b>")
    assert "&lt;b&gt;trying again&lt;/b&gt;" in listed._repr_html_()
    assert repr(listed).splitlines()[1].endswith("trying again</b>")


async def test_the_only_endpoint_needs_no_name(serve, hub, capsys):
    await serve("token --days 0.5")
    assert hub.asked_about == [("serve-iris", {"days": 0.5})]
    await serve("share grace")
    await serve("share linus")
    await serve("share")
    await serve("unshare grace")
    await serve("unshare linus")
    await serve("stop")
    assert capsys.readouterr().out.splitlines() == [
        "for callers",
        "endpoint 'iris' is shared with: grace",
        "endpoint 'iris' is shared with: grace, linus",
        "endpoint 'iris' is shared with: grace, linus",
        "endpoint 'iris' is shared with: linus",
        "endpoint 'iris' is shared with: nobody",
        "endpoint 'iris' is stopped",
    ]
    assert hub.servers == {}
    # Only the hub knows the names, so no endpoint is asked.
    assert hub.requests == []


async def test_one_of_several_endpoints_is_named(serve, hub, capsys):
    hub.serves("cells", "cells:1")
    for line in ("stop", "token", "share grace", "share", "unshare grace"):
        with pytest.raises(EndpointNotFoundError, match=r"there are 2 endpoints \(cells, iris\); name one of them"):
            await serve(line)
    await serve("token cells")
    await serve("token --name iris")
    assert [name for name, _ in hub.asked_about] == ["serve-cells", "serve-iris"]
    await serve("share grace --name cells")
    await serve("unshare grace -n cells")
    await serve("stop cells")
    assert "endpoint 'cells' is shared with: grace" in capsys.readouterr().out
    assert [*hub.servers] == ["serve-iris"]


async def test_a_running_endpoint_is_switched_and_another_one_started(serve, hub, model_store):
    save(model_store, accuracy=0.5)
    assert [row[0] for row in (await serve("iris")).rows] == ["iris"]
    assert hub.requests == [
        ("POST", "/user/ada/serve-iris/farandole/version", f"token {TOKEN}"),
        ("GET", "/user/ada/serve-iris/farandole/status", f"token {TOKEN}"),
    ]
    assert hub.asked == {}
    await serve("iris:1 --name flowers --profile cpu --wait")
    assert hub.asked["serve-flowers"]["user_options"] == {
        "role": "endpoint", "wait": True, "profile": "cpu", "model": "iris:1", "runtime": "onnx",
    }  # fmt: skip


async def test_an_endpoint_that_is_starting_is_not_switched(serve, hub, model_store):
    save(model_store, accuracy=0.5)
    hub.serves("iris", "iris:3", ready=False)
    with pytest.raises(EndpointError, match="the endpoint iris is starting or stopping; see `%serve list`"):
        await serve("iris:1")
    assert (hub.asked, hub.requests) == ({}, [])


async def test_an_endpoint_that_runs_a_command_is_not_switched(serve, hub, model_store):
    save(model_store, accuracy=0.5)
    hub.servers["serve-iris"]["user_options"] = {"role": "endpoint", "command": ["python", "app.py"]}
    with pytest.raises(EndpointExistsError, match="there is an endpoint 'iris'; stop it with `%serve stop iris`"):
        await serve("iris:1 --profile cpu")
    assert (hub.asked, hub.requests) == ({}, [])


async def test_a_command_is_split_as_in_a_shell(serve, hub):
    await serve("""--command 'python "my app.py" --port {port}' --name app""")
    assert hub.asked["serve-app"]["user_options"]["command"] == ["python", "my app.py", "--port", "{port}"]


@pytest.mark.parametrize("variables", [{}, {"label": "mine"}])
async def test_a_stream_keeps_its_label_and_other_braces_are_variables(serve, hub, model_store, shell, variables):
    save(model_store, accuracy=0.5, name=ModelName(model="routes"))
    shell.user_ns.update({"subject": "calls", **variables})
    try:
        await serve("routes:1 --from {subject} --to decisions.{label}")
        await serve("routes:1 --name other --from calls --to decisions.{label}")
    finally:
        for name in ("subject", *variables):
            del shell.user_ns[name]
    wanted = {"from": "calls", "to": "decisions.{label}"}
    for server in ("serve-routes", "serve-other"):
        options = hub.asked[server]["user_options"]
        assert {key: options.get(key) for key in wanted} == wanted


async def test_credentials_are_a_file_in_the_home(serve, hub, model_store, tmp_path, monkeypatch):
    save(model_store, accuracy=0.5, name=ModelName(model="routes"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "nats.creds").write_text("secret")
    await serve("routes:1 --from nats://a.b/calls --to nats://a.b/to --credentials ~/nats.creds")
    assert hub.asked["serve-routes"]["user_options"]["credentials"] == "nats.creds"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("flowers --from calls", "a stream needs both `--from` and `--to`"),
        ("flowers --to calls", "a stream needs both `--from` and `--to`"),
        ("flowers --credentials a", "a stream needs both `--from` and `--to`"),
        ("flowers --from calls --to 'two words'", "is not a subject of NATS"),
        ("flowers --from calls --to calls", "would be scored again"),
        ("flowers --from calls --to to --credentials missing", "is not a file in your home"),
        ("iris --from calls --to to", "does not change its server; leave out --from --to, or stop it"),
        ("--command app --name app --from calls --to to", "a command does not score records of a stream"),
        ("iris --kserve --from calls --to to", "leave out --from --to"),
        ("iris:3 --command app", "`%serve --command` takes no model and no action; leave out iris:3"),
        ("stop iris --command app", "leave out stop iris"),
        ("--command app --kserve", "leave out --kserve"),
        ("--command ''", "give one of them"),
        ("""--command 'python "app.py'""", "the quotes in the command 'python \"app.py' do not match; close them"),
        ("--command 'python", 'the quotes in "--command \'python" do not match; close them'),
        ("unshare", "`%serve unshare` needs a user, such as `%serve unshare grace`"),
        ("iris:no", "'no' in 'iris:no' is not a version"),
        ("stp iris", "'stp iris' cannot be the name of a model"),
        ("iris-w2 --name iris-w2 --command app", "leave out iris-w2"),
        (
            "iris --profile big",
            (
                "there is an endpoint 'iris', and switching its version does not change its server; leave out "
                "--profile, or stop it first with `%serve stop iris`"
            ),
        ),
        ("flowers --name iris --wait --timeout 0", "leave out --wait --timeout, or stop it first"),
        ("iris --kserve --profile big --wait", "`%serve --kserve` starts nothing; leave out --profile --wait"),
        ("iris --kserve --timeout 60", "leave out --timeout"),
        ("--command app --name app-w2", "names of workers end with -w and a number"),
    ],
)
async def test_a_wrong_line_is_answered_with_the_remedy_and_changes_nothing(serve, hub, line, message):
    with pytest.raises(UsageError) as caught:
        await serve(line)
    assert message in str(caught.value)
    assert (hub.asked, [*hub.servers], hub.requests) == ({}, ["serve-iris"], [])


@pytest.mark.parametrize("line", ["plain", "plain:1 --kserve", "plain --name iris"])
async def test_a_model_without_an_example_is_not_served(serve, hub, model_store, capsys, line):
    def write(folder):
        (folder / WEIGHTS_FILE).write_bytes(b"weights")
        return ModelInfo(name=plain, version=1, folder=folder, created=1.0)

    plain = ModelName(model="plain")
    model_store.save(plain, write)
    with pytest.raises(EndpointError, match="was saved without an example, so it cannot be served; save it with `exam"):
        await serve(line)
    assert (hub.asked, capsys.readouterr().out) == ({}, "")


async def test_a_program_that_others_can_write_is_refused_before_a_server_starts(serve, hub, model_store):
    save(model_store, accuracy=0.5, files=(WEIGHTS_FILE, PROGRAM_FILE)).folder.chmod(0o777)
    with pytest.raises(ModelError, match="other users may have written it .* copy it to your own store"):
        await serve("iris --name flowers")
    assert hub.asked == {}
    save(model_store, accuracy=0.5).folder.chmod(0o777)
    await serve("iris --name flowers")
    assert hub.asked["serve-flowers"]["user_options"]["model"] == "iris:2"


@pytest.mark.parametrize(
    ("line", "text", "option"),
    [
        ("iris --help", "%serve iris: Serve a model", "--profile"),
        ("iris:3 --help", "%serve iris:3: Serve a model", "--kserve"),
        ("token --help", "%serve token: Print a new token", "--days"),
        ("--help", "%serve list: List your endpoints", ""),
    ],
)
async def test_models_and_actions_are_explained(serve, hub, capsys, line, text, option):
    await serve(line)
    said = capsys.readouterr().out
    assert said.startswith(text)
    assert option in said
    assert hub.requests == []
