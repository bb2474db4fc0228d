"""Tests that the page of error messages lists all messages in the code, and that each message is a sentence."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.errors_page import PAGE, PARTS, ROOT, collect, find, page, program
from docs.messages import Module, Texts, name_of

ENTRIES = [
    (folder, error, entry.message)
    for folder in PARTS.values()
    for (error, _), entries in collect(folder).items()
    for entry in entries
]

PASSED_ON = "its message is that of another error, which the page lists"
ELSEWHERE = "`MAKERS` and `MESSAGES` in docs/errors_page.py name the place of its messages"
PART = "its message is a part of another one, in the place of a name such as {exc}"
HANDLED = "the code handles it"
DAMAGED = "the panel and the notebook show it as the reason why they leave out a file or a run"
SAYS_ITSELF = "the sentence itself says what to do"
BUG = "only a wrong program raises it"
NOT_FOR_USERS = {
    "extension/farandole/batches/columns.py": {"raise BatchError(": PART},
    "extension/farandole/batches/results.py": {"raise StageError(": PART},
    "extension/farandole/batches/stages.py": {"raise StageError(": PART, 'raise RankError(f"{name}': PASSED_ON},
    "extension/farandole/datasets/columns.py": {"raise NoTensorError(": PART},
    "extension/farandole/datasets/images.py": {"raise ValueError(": PART},
    "extension/farandole/datasets/versions/manifest.py": {"raise ValueError(": PART},
    "extension/farandole/server/data_sets.py": {"raise web.HTTPError(404, reason(exc))": PASSED_ON},
    "extension/farandole/datasets/mapped.py": {"raise IndexError(": BUG},
    "extension/farandole/driver/cells/models.py": {"raise ModelError(error)": PASSED_ON},
    "extension/farandole/driver/cells/transfer.py": {"raise TransferError(str(exc))": PASSED_ON},
    "extension/farandole/driver/cells/folder_ends.py": {"raise TransferError(str(exc))": PASSED_ON},
    "extension/farandole/driver/control/mailbox.py": {
        "raise FarandoleError(error)": PASSED_ON,
        "raise OSError(": HANDLED,
    },
    "extension/farandole/driver/core/core.py": {"raise NoClusterError(self.ended)": ELSEWHERE},
    "extension/farandole/driver/recovery/orphaned_runs.py": {"raise ValueError(": DAMAGED},
    "extension/farandole/files/pieces.py": {"raise ValueError(": PART},
    "extension/farandole/registry/archive.py": {"raise ValueError(": PART},
    "extension/farandole/registry/image.py": {"raise ValueError(": PART},
    "extension/farandole/ranks/data/worker.py": {"raise CancelledError(": "Dask computes such a task elsewhere"},
    "extension/farandole/frames.py": {"raise ValueError(": "the sender of such a frame is disconnected"},
    "extension/farandole/driver/preflight/fit.py": {"raise UsageError(errors[0])": PASSED_ON},
    "extension/farandole/driver/preflight/modes.py": {"raise UsageError(errors[0])": PASSED_ON},
    "extension/farandole/driver/workers/source.py": {"raise NoClusterError(str(exc))": PASSED_ON},
    "extension/farandole/cli/credentials.py": {"raise ValueError(": PART},
    "extension/farandole/models/folders.py": {"raise OSError(": PART},
    "extension/farandole/models/model.py": {"raise ValueError(": PART},
    "extension/farandole/notebook/arguments.py": {
        'raise UsageError(f"{exc}.{similar_option': "IPython writes its message",
    },
    "extension/farandole/notebook/magics.py": {
        "raise NoClusterError(self._release())": ELSEWHERE,
        'raise NoClusterError(f"{exc}{hint}")': PASSED_ON,
    },
    "extension/farandole/notebook/sinks/wandb.py": {"raise OSError(": "a notice of the run has the reason"},
    "extension/farandole/protocol.py": {"raise ValueError(": "such a report is left out"},
    "extension/farandole/ranks/checkpoints/checkpoint.py": {
        "raise OSError(": "a checkpoint that cannot be written is a notice in the output",
        "raise UsageError(received)": PASSED_ON,
    },
    "extension/farandole/ranks/checkpoints/files.py": {
        "raise DamagedError(": "a damaged checkpoint is skipped with a notice in the output",
        "raise OSError(0": "a checkpoint that cannot be written is a notice in the output",
        "raise _cause(exc)": "a checkpoint that cannot be written is a notice in the output",
    },
    "extension/farandole/ranks/checkpoints/sharded.py": {
        "raise ConnectionResetError(": "a checkpoint that cannot be written is a notice in the output",
        "raise OSError(": "a checkpoint that cannot be written is a notice in the output",
        "raise UsageError(str(exc))": PASSED_ON,
    },
    "extension/farandole/ranks/checkpoints/memory_checkpoint.py": {"raise PermissionError(": HANDLED},
    "extension/farandole/ranks/preflight/links.py": {
        "raise ConnectionError(": "a row of `%cluster check` shows it",
        "raise TimeoutError(": "a row of `%cluster check` shows it",
    },
    "extension/farandole/ranks/training/sync/server/asynchronous_training.py": {
        "raise ConnectionError(": "a rank was lost, which the driver reports"
    },
    "extension/farandole/ranks/training/sync/server/frames.py": {
        "raise ConnectionError(": "a notice of the run shows it"
    },
    "extension/farandole/ranks/training/shard.py": {"raise AttributeError(name)": HANDLED},
    "extension/farandole/ranks/world/agreement.py": {"raise kinds[number](": PASSED_ON},
    "extension/farandole/reading.py": {"raise ValueError(": DAMAGED},
    "extension/farandole/runs/checkpoints/full_model.py": {"raise UsageError(str(exc))": PASSED_ON},
    "extension/farandole/runs/checkpoints/intact.py": {
        "raise DamagedError(": "a damaged checkpoint is skipped with a notice in the output"
    },
    "extension/farandole/runs/folder.py": {"raise ValueError(": DAMAGED},
    "extension/farandole/runs/lifecycle/lock.py": {"raise TimeoutError(": "the refusal of the change has the reason"},
    "extension/farandole/runs/lifecycle/tombstones.py": {
        "raise OSError(": "the refusal of the deletion has the reason"
    },
    "extension/farandole/runs/model.py": {'raise ValueError(f"run.json has no': DAMAGED},
    "extension/farandole/runs/notes.py": {"raise UsageError(str(exc))": PASSED_ON},
    "extension/farandole/runs/writer.py": {"raise OSError(": HANDLED},
    "extension/farandole/server/journal/journals.py": {"raise ValueError(": BUG},
    "extension/farandole/server/panel/routes/endpoints.py": {
        'raise RefusedError("unknown", str(exc))': PASSED_ON,
        "raise UsageError(str(exc))": PASSED_ON,
    },
    "extension/farandole/server/panel/routes/examples.py": {'raise RefusedError("unknown", str(exc))': PASSED_ON},
    "extension/farandole/server/panel/snapshots/reader.py": {'raise RefusedError("unknown", str(exc))': PASSED_ON},
    "extension/farandole/server/panel/views.py": {"raise ValueError(": DAMAGED},
    "extension/farandole/server/worker/routes.py": {"raise web.HTTPError(400, str(exc))": PASSED_ON},
    "extension/farandole/serving/command.py": {"raise web.HTTPError(403)": "only a program without a token sees it"},
    "extension/farandole/ranks/models/save.py": {"raise OSError(": PASSED_ON},
    "extension/farandole/serving/dataplane.py": {"raise RequestValidationError(": PASSED_ON},
    "extension/farandole/serving/streams/scorer.py": {"raise InvalidInputError(str(exc))": PASSED_ON},
    "hub/doctor/finding.py": {"raise ValueError(": BUG},
    "hub/engine_filter/body.py": {"raise ValueError(": PART},
    "hub/engine_filter/engine.py": {"raise EngineError(": "the client gets the engine's answer"},
    "hub/host_routing.py": {"raise ValueError(": PART},
    "hub/process.py": {"raise TimeoutError(": HANDLED},
    "hub/services/streams/health.py": {"raise OSError(": "only the health check of a container raises it"},
    "hub/services/operators/client.py": {"raise HubRefusedError(": "the page shows the hub's own message"},
    "hub/services/operators/handlers.py": {
        "raise HTTPError(HTTPStatus.BAD_REQUEST, reason=": "the form admits no such text",
        "raise HTTPError(HTTPStatus.SERVICE_UNAVAILABLE, ": SAYS_ITSELF,
    },
    "hub/services/snapshots/access.py": {"raise HTTPError(": SAYS_ITSELF},
    "hub/services/snapshots/handlers.py": {"raise HTTPError(": SAYS_ITSELF},
    "hub/services/snapshots/mirrors/mirror.py": {
        "raise OSError(": PART,
        "raise ResticError(": PASSED_ON,
        "raise ValueError(": PART,
    },
    "hub/services/snapshots/mirrors/received.py": {"raise HTTPError(": SAYS_ITSELF},
    "hub/services/snapshots/objects.py": {"raise HTTPError(": SAYS_ITSELF, "raise _refusal(exc)": PASSED_ON},
    "spawner_config/access/pages.py": {"raise web.HTTPError(404)": "the page does not exist"},
    "spawner_config/containers/addresses.py": {"raise ValueError(": PART},
    "spawner_config/containers/images.py": {"raise requests.Timeout(": PART},
    "spawner_config/containers/network_spawner.py": {"raise refused_start(str(exc)": PASSED_ON},
    "spawner_config/database.py": {"raise ArgumentError(": HANDLED},
    "spawner_config/gpus/spawner.py": {"raise _no_gpu(str(exc))": PASSED_ON},
    "spawner_config/kubernetes/pods.py": {"raise refused_start(str(exc)": PASSED_ON},
    "spawner_config/limits/tokens.py": {"raise HTTPError(400, reason)": ELSEWHERE},
    "spawner_config/models.py": {
        'raise ProfileError(f"{table}: {exc}")': PASSED_ON,
        "raise self.error(self._sentence(": ELSEWHERE,
    },
    "spawner_config/operators/notices.py": {"raise TimeoutError(": "the hub's log has the reason"},
    "spawner_config/profiles/options.py": {
        "raise OptionsError(str(exc))": PASSED_ON,
        "raise _refusal(exc)": PASSED_ON,
    },
    "spawner_config/profiles/profiles.py": {
        'raise ProfileError(f"{path}: {exc}")': PASSED_ON,
        'raise ProfileError(f"{key} must be {wanted}.")': ELSEWHERE,
    },
    "spawner_config/publishing/handlers.py": {
        'raise HTTPError(400, "%s", exc)': PASSED_ON,
        'raise HTTPError(409, "%s", exc)': PASSED_ON,
    },
    "hub/backup/sites/command.py": {'raise BackupError(str(result["error"]))': PASSED_ON},
    "spawner_config/publishing/publications.py": {"raise PublicationError(_error_of(": PASSED_ON},
    "spawner_config/settings.py": {'raise SettingsError("\\n".join(messages))': PASSED_ON},
    "spawner_config/swarm/spawner.py": {"raise refused_start(str(exc)": PASSED_ON},
}
"""The raise statements whose messages are not on the page. Each file has a dict from the beginnings of the lines to the
reasons.
"""


def test_the_page_lists_the_messages_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "The messages have changed: run `make errors`."


def test_all_errors_for_users_are_listed() -> None:
    # `QuotaError` has the message of the hub, which the page lists in the part about the hub.
    found = {error for folder, error, _ in ENTRIES if folder == "extension/farandole"}
    assert found >= {
        "ClusterExistsError",
        "DeadlineError",
        "HubBusyError",
        "HubError",
        "HubUnreachableError",
        "NoClusterError",
        "PermissionDeniedError",
        "RankDiedError",
        "RankError",
        "ReportError",
        "RunNotFoundError",
        "TransferError",
        "UsageError",
        "WorkerStartError",
    }
    assert len(ENTRIES) > 350


def raises_without_a_message() -> Iterator[tuple[str, str]]:
    """Yield the file and the source line of each ``raise`` whose message is not on the page."""
    listed = {(found.path, found.line) for folder in PARTS.values() for found in find(folder)}

    def is_listed(path: Path, node: ast.AST) -> bool:
        return any((path, line) in listed for line in range(node.lineno, node.end_lineno + 1))

    for module in program().values():
        lines = module.path.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and not is_listed(module.path, node):
                # If a function creates the error, the message is in that function.
                made = module.function(name_of(node.exc.func))
                if made is None or not is_listed(made[0].path, made[1]):
                    yield str(module.path.relative_to(ROOT)), lines[node.lineno - 1].strip()


def test_each_raise_has_a_message_on_the_page_or_a_reason_why_not() -> None:
    known = {(path, line) for path, begins in NOT_FOR_USERS.items() for line in begins}
    missing, used = [], set()
    for path, line in raises_without_a_message():
        reasons = {(path, begin) for begin in NOT_FOR_USERS.get(path, {}) if line.startswith(begin)}
        used |= reasons
        missing += [] if reasons else [f"{path}: {line}"]
    assert not missing, "List these messages (docs/errors_page.py), or add them to NOT_FOR_USERS with a reason."
    assert used == known, "These have a message on the page, or are gone: remove them from NOT_FOR_USERS."


@pytest.mark.parametrize(
    "words",
    [
        "its process is gone",
        "The image {image} has version {label}",
        "The engine has not removed this server's last container",
        "The engine could not give this server GPU {ids}",
        "The engine on this host cannot give GPUs",
        "not available now",
        "The server ended while it started ({words})",
        "A quota of this hub is used up",
        "Kubernetes refuses this server",
        "There is no volume claim",
        "The server's container cannot be created",
        "is not a manager of a swarm",
        "was stopped from the panel",
        "gpu_class must be in a profile with gpus",
        "name must be different for each profile",
        "unknown key {key}",
        "This state has no part {name}",
    ],
)
def test_messages_that_are_made_far_from_their_raise_are_there(words: str) -> None:
    assert any(words in message for _, _, message in ENTRIES)


def test_when_is_what_the_code_does() -> None:
    said = [entry.when for folder in PARTS.values() for entries in collect(folder).values() for entry in entries]
    assert not [when for when in said if not when or when.startswith("See ")]


def test_each_message_is_a_sentence() -> None:
    for _, error, message in ENTRIES:
        assert message == " ".join(message.split()), error
        assert len(re.findall(r"[A-Za-z]+", message)) >= 3, message
        assert re.search(r"[\w.)}`'?+/>-]$", message), f"{message!r} ends in the middle"


def texts(code: str) -> list[str]:
    """Return the messages of the only error that the function in ``code`` raises."""
    tree = ast.parse(code)
    module = Module(tree)
    [function] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "f"]
    [call] = [node.exc for node in ast.walk(function) if isinstance(node, ast.Raise)]
    return Texts(module, function).of_all(call.args)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def f(a):\n    raise E(f'{a.name!r} is {len(a)} long')", ["{name} is {number of a} long"]),
        ("def f(a):\n    raise E('a ' + ('few words' if a else 'lot of words'))", ["a few words", "a lot of words"]),
        ("LEAST = 3\ndef f(a):\n    raise E(f'at least {LEAST}, as {type(a).__name__}')", ["at least 3, as {type}"]),
        ("def f(a):\n    why = f'for {a}'\n    raise E(f'not {why}')", ["not for {a}"]),
        ("def g(b):\n    return f'what {b} says'\ndef f(a):\n    raise E(g(a))", ["what {b} says"]),
        ("def f(a):\n    raise E(f'one of {\", \".join(sorted(a))}')", ["one of {a}"]),
        ("def f(a, b):\n    raise E(f'{a + 1} of {b - 1}')", ["{a + 1} of {b - 1}"]),
        ("def g(b):\n    if b:\n        return None\n    return 'too few'\ndef f(a):\n    raise E(g(a))", ["too few"]),
        ("def f(a):\n    if why := f'not {a}':\n        raise E(why)", ["not {a}"]),
        ("def f(a):\n    why = ('no engine.', 'Start it.')\n    raise E(' '.join(why))", ["no engine. Start it."]),
    ],
)
def test_messages_are_found_in_code(code: str, found: list[str]) -> None:
    assert texts(code) == found


def test_fields_of_models_have_messages() -> None:
    messages = {message for folder, _, message in ENTRIES if folder == "spawner_config"}
    assert "FARANDOLE_HTTPS is {value}. It must be yes or no." in messages
    assert "cpus must be a number above 0." in messages
