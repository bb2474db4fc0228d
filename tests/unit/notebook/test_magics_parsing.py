"""Tests for the arguments of the magics, in a real IPython shell with a fake cluster that records calls."""

import pytest
from farandole.driver.cluster import Cluster
from farandole.driver.options import Elastic
from farandole.driver.output import Block
from farandole.exceptions import NoClusterError, RunNotFoundError, TransferError, UsageError
from farandole.notebook.background import ACTIONS as RUN_ACTIONS
from farandole.notebook.display import RUN_TYPE
from farandole.notebook.help import ask_for_help
from farandole.notebook.magics import ACTIONS
from farandole.protocol import Status
from farandole.runs.store import RunStore
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


class RememberingCluster:
    """A fake cluster that records calls. Each cell prints a line on both ranks and another line on rank 1."""

    name = "main"
    size = 2
    ended = ""
    connected = False
    has_dask = False

    def __init__(self):
        self.calls = []
        self.background = {}

    def is_connected(self, hub_url):
        self.calls.append(("is_connected", hub_url))
        return self.connected

    def close(self):
        self.calls.append(("close",))

    def run(self, code, *, ranks, show):
        self.calls.append(("run", code, ranks))
        show(Block(ranks=(0, 1), stream="stdout", text="hi\n"))
        show(Block(ranks=(1,), stream="stdout", text="only one\n"))

    def train(self, code, *, resume, name, elastic, options, config, **_others):
        if config:
            self.calls.append(("config", config))
            return
        if "script" in options:
            self.calls.append(("script", code, name, options))
            return
        self.calls.append(("train", code, name, resume) if elastic is None else ("elastic", code, elastic))

    def push(self, values, *, ranks):
        self.calls.append(("push", values, ranks))

    def pull(self, *names, ranks):
        self.calls.append(("pull", names, ranks))
        return {rank: {name: f"{name}{rank}" for name in names} for rank in ranks or (0, 1)}

    def scale(self, workers):
        self.calls.append(("scale", workers))

    def status(self):
        return "status"

    def check(self, *, model, batch):
        return f"checked {model} {batch}".rstrip()

    def logs(self, rank, *, lines):
        return f"rank {rank}, {lines} lines"

    def stop(self):
        self.calls.append(("stop",))

    def interrupt(self):
        self.calls.append(("interrupt",))


@pytest.fixture
def shell(monkeypatch, tmp_path):
    monkeypatch.setenv("FARANDOLE_RUNS", str(tmp_path))
    for variable in ("FARANDOLE_HUB_URL", "JUPYTERHUB_API_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "farandole")
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture
def magics(shell):
    return shell.magics_manager.registry["FarandoleMagics"]


@pytest.fixture
def cluster(magics):
    magics.cluster = RememberingCluster()
    return magics.cluster


@pytest.mark.parametrize(
    ("kind", "name", "line"),
    [
        ("cell", "distributed", ""),
        ("cell", "distributed_train", ""),
        ("line", "distributed_train", "train.py"),
        ("line", "push", "x"),
        ("line", "pull", "x"),
        ("line", "cluster", "status"),
        ("line", "cluster", "scale 3"),
        ("line", "cluster", "stop"),
        ("line", "cluster", "logs 0"),
        ("line", "cluster", "interrupt"),
    ],
)
def test_without_a_cluster_each_magic_explains_how_to_get_one(shell, monkeypatch, tmp_path, kind, name, line):
    shell.user_ns["x"] = 1
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    with pytest.raises(NoClusterError, match=r"no cluster yet.*%cluster start --workers 2.*%cluster attach.*--local"):
        shell.run_cell_magic(name, line, "pass") if kind == "cell" else shell.run_line_magic(name, line)


def test_a_cluster_that_was_stopped_from_outside_is_released(shell, magics, cluster):
    cluster.ended = "cluster 'main' was stopped from the panel"
    with pytest.raises(NoClusterError, match="was stopped from the panel"):
        shell.run_line_magic("cluster", "status")
    assert (magics.cluster, cluster.calls) == (None, [("close",)])
    magics.cluster = cluster
    # The missing hub is reported only if the kernel does not lead a cluster, so this error shows the release.
    with pytest.raises(NoClusterError, match="no JupyterHub here"):
        shell.run_line_magic("cluster", "start")


@pytest.mark.parametrize("line", ["start", "attach", "list", "stop old"])
def test_without_a_hub_the_remedy_is_local(shell, line):
    with pytest.raises(NoClusterError, match=r"no JupyterHub here.*%cluster start --local"):
        shell.run_line_magic("cluster", line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("start --workers 0", "number of workers must be at least 1, not 0"),
        ("start --workers -3", "number of workers must be at least 1, not -3"),
        ("start --ranks 0 --local", "number of ranks must be at least 1, not 0"),
        ("start --workers many", "invalid int value: 'many'"),
        ("start --workers 3 --local", "only worker, so 3 workers cannot be started; use more `--ranks`"),
        ("start --backend mpi --local", "no backend 'mpi'; choose one of horovod, torch, none"),
        ("start --name Big_One --local", "'Big_One' cannot be a cluster's name; use 1 to 24 lower-case"),
        ("start --sideways", "unrecognized arguments: --sideways"),
        ("dance", "no action 'dance'; use one of start, status"),
        ("strat", r"no action 'strat'; use one of start, .* Did you mean 'start' or"),
        ("dance --help", "no action 'dance'"),
        ("", "the action is missing; use one of start, status, .* dask, interrupt$"),
        ("--workers 2", "the action is missing; use one of start"),
        ("--help", "the action is missing; use one of start"),
        ("start --worekrs 3", r"unrecognized arguments: --worekrs.* Did you mean '--workers'\?"),
        ("start --work 3 --profiel=big", r"unrecognized arguments: --profiel=big. Did you mean '--profile'\?"),
        ("start --backend toch --local", r"choose one of horovod, torch, none. Did you mean 'torch'\?"),
        ("start --name 'my", 'the quotes in "start --name \'my" do not match'),
    ],
)
def test_a_wrong_start_is_refused_with_the_remedy(shell, magics, line, message):
    with pytest.raises(UsageError, match=message):
        shell.run_line_magic("cluster", line)
    assert magics.cluster is None


@pytest.mark.parametrize("value", ["", " many", " 1.5", " many --workers 2"])
def test_scale_needs_a_number(shell, cluster, value):
    with pytest.raises(UsageError, match="needs a number of workers, such as `%cluster scale 3`$"):
        shell.run_line_magic("cluster", f"scale{value}")
    assert cluster.calls == []


@pytest.mark.parametrize("line", ["logs", "logs x", "logs 1.5"])
def test_logs_need_a_rank(shell, cluster, line):
    with pytest.raises(UsageError, match="needs the number of a rank, such as `%cluster logs 0`$"):
        shell.run_line_magic("cluster", line)


def test_each_action_of_cluster_is_explained(shell, cluster, capsys):
    assert all(shell.run_line_magic("cluster", f"{action} --help") is None for action in ACTIONS)
    text = capsys.readouterr().out
    assert [line.split(":")[0] for line in text.splitlines() if not line.startswith(" ")] == [
        f"%cluster {action}" for action in ACTIONS
    ]
    assert cluster.calls == []


def test_each_action_of_runs_is_explained(shell, capsys):
    assert all(shell.run_line_magic("runs", f"{action} --help") is None for action in RUN_ACTIONS)
    text = capsys.readouterr().out
    assert [line.split(":")[0] for line in text.splitlines() if line.startswith("%")] == [
        f"%runs {action}" for action in RUN_ACTIONS
    ]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("%runs show?", ["%runs show: Show the chart", "the beginning of its id"]),
        ("%runs wait digits ??", ["%runs wait: Wait until", "--timeout"]),
        ("%runs list?", ["%runs list: List the newest runs", "--limit"]),
        ("%runs stop -h", ["%runs stop: Stop a background run"]),
        ("%cluster start?", ["%cluster start: Start a cluster", "--workers, -w", "--local", "without a hub"]),
        ("%cluster start --workers 2 ??", ["%cluster start: Start a cluster", "--wait"]),
        ("  %cluster scale?\n", ["%cluster scale: Start or stop workers"]),
        ("%cluster interrupt -h", ["%cluster interrupt: Stop the cell"]),
    ],
)
def test_a_question_mark_explains_an_action(shell, magics, capsys, question, expected):
    assert shell.run_cell(question).success
    text = capsys.readouterr().out
    assert [part for part in expected if part not in text] == []
    assert "Object" not in text
    assert magics.cluster is None


def test_other_questions_are_ipythons(shell):
    for cell in ("%cluster?\n", "%runs?\n", "cluster?\n", "x = '%cluster start?'\n"):
        assert ask_for_help([cell]) == [cell]
    shell.run_line_magic("reload_ext", "farandole")
    assert shell.input_transformers_cleanup.count(ask_for_help) == 1


def test_cluster_actions_reach_the_cluster(shell, cluster, magics, capsys):
    assert shell.run_line_magic("cluster", "scale 3") == "status"
    assert shell.run_line_magic("cluster", "scale --workers 4") == "status"
    assert shell.run_line_magic("cluster", "check") == "checked"
    assert shell.run_line_magic("cluster", "check --model net --batch x") == "checked net x"
    shell.run_line_magic("cluster", "logs 1 --lines 5")
    shell.run_line_magic("cluster", "interrupt")
    shell.run_line_magic("cluster", "stop")
    assert cluster.calls == [("scale", 3), ("scale", 4), ("interrupt",), ("stop",)]
    assert capsys.readouterr().out == "rank 1, 5 lines\ncluster 'main' is stopped\n"
    assert magics.cluster is None


class ActiveRun:
    """A background run that has printed a line, or a run that has ended."""

    def __init__(self, store, *, ended=False):
        self.run = store.create(code="x", backend="none", size=1, workers=["main-w0"])
        if ended:
            self.run.finish(Status.FINISHED)

    def show(self, show):
        show(Block(ranks=(0,), stream="stdout", text=f"output of {self.run.id}\n"))


def test_attach_to_the_connected_cluster_changes_nothing(shell, cluster, magics, capsys, tmp_path):
    store = RunStore(tmp_path)
    active, ended = ActiveRun(store), ActiveRun(store, ended=True)
    cluster.connected, cluster.has_dask = True, True
    cluster.background = {one.run.id: one for one in (active, ended)}
    with capture_output() as output:
        assert shell.run_line_magic("cluster", "attach main --hub https://hub") is cluster
    assert magics.cluster is cluster
    assert cluster.calls == [("is_connected", "https://hub")]
    assert output.stdout.startswith("this notebook leads cluster 'main' already\n")
    assert f"output of {active.run.id}" in output.stdout
    assert ended.run.id not in output.stdout
    assert [one.data[RUN_TYPE]["run"] for one in output.outputs] == [active.run.id]


@pytest.mark.parametrize("dask", [False, True])
@pytest.mark.parametrize(("line", "name"), [("attach", "main"), ("attach other", "other")])
def test_attach_to_another_or_a_lost_cluster_says_that_dask_has_ended(
    shell, cluster, magics, monkeypatch, capsys, line, name, dask
):
    found = RememberingCluster()
    monkeypatch.setattr(Cluster, "attach", lambda name, *, timeout, hub_url: found)
    cluster.connected, cluster.has_dask = line != "attach", dask
    assert shell.run_line_magic("cluster", line) is magics.cluster is found
    assert cluster.calls[-1] == ("close",)
    assert capsys.readouterr().out == (
        f"Dask has ended on cluster 'main'; `%cluster dask` starts it on {name!r}\n" if dask else ""
    )


@pytest.mark.parametrize("line", ["status mian", "check --name mian", "interrupt mian"])
def test_an_action_for_another_cluster_names_this_one(shell, cluster, line):
    with pytest.raises(UsageError, match=r"leads, 'main', and not for 'mian'\. Did you mean 'main'\?"):
        shell.run_line_magic("cluster", line)
    assert cluster.calls == []
    assert shell.run_line_magic("cluster", "status main") == "status"


def test_a_stop_without_a_hub_suggests_the_cluster_on_this_machine(shell, cluster):
    with pytest.raises(NoClusterError, match=r"no JupyterHub here.* Did you mean 'main'\?"):
        shell.run_line_magic("cluster", "stop mian")
    with pytest.raises(NoClusterError, match=r"`%cluster start --hub URL` for workers on a hub\.$"):
        shell.run_line_magic("cluster", "stop other")
    assert cluster.calls == []


@pytest.mark.parametrize("magic", ["push", "pull"])
@pytest.mark.parametrize("name", ["None", "9x", "model.weight"])
def test_push_and_pull_name_what_cannot_be_a_variable(shell, cluster, magic, name):
    with pytest.raises(UsageError, match=f"%{magic} cannot copy '{name}': a variable's name has only letters"):
        shell.run_line_magic(magic, name)
    assert cluster.calls == []


@pytest.mark.parametrize("line", ["'x, y'", '"x" "y"'])
def test_quotes_are_no_part_of_names(shell, cluster, line):
    shell.user_ns.update(x=1, y=[2])
    shell.run_line_magic("push", line)
    assert cluster.calls == [("push", {"x": 1, "y": [2]}, None)]


def test_a_second_start_keeps_the_first_cluster(shell, cluster, magics):
    with pytest.raises(UsageError, match=r"already leads cluster 'main'; stop it first with `%cluster stop`"):
        shell.run_line_magic("cluster", "start --local")
    assert magics.cluster is cluster


def test_a_cell_runs_on_the_ranks_and_its_output_is_labelled(shell, cluster, capsys):
    shell.run_cell_magic("distributed", "--ranks 0,2-3", "print('hi')")
    assert cluster.calls == [("run", "print('hi')", (0, 2, 3))]
    first, hi, second, only = capsys.readouterr().out.splitlines()
    assert (hi, only) == ("hi", "only one")
    assert "ranks 0-1" in first
    assert "rank 1" in second


@pytest.mark.parametrize("ranks", ["x", "3-1", "1,,2"])
def test_invalid_ranks_never_reach_the_cluster(shell, cluster, ranks):
    with pytest.raises(UsageError, match=r"write"):
        shell.run_cell_magic("distributed", f"--ranks {ranks}", "pass")
    assert cluster.calls == []


@pytest.mark.parametrize("line", ["x, y", "x,y", "x y"])
def test_push_takes_names_with_commas_or_spaces(shell, cluster, line):
    shell.user_ns.update(x=1, y=[2])
    shell.run_line_magic("push", line)
    assert cluster.calls == [("push", {"x": 1, "y": [2]}, None)]


def test_push_of_an_undefined_name_pushes_nothing(shell, cluster):
    shell.user_ns["x"] = 1
    with pytest.raises(
        TransferError, match="'nope' is not defined in this notebook; assign a value before you push it"
    ):
        shell.run_line_magic("push", "x, nope --ranks 1")
    assert cluster.calls == []


def test_pull_sets_variables_of_one_rank_or_dicts_of_all(shell, cluster):
    shell.run_line_magic("pull", "a, b --rank 1")
    assert (shell.user_ns["a"], shell.user_ns["b"]) == ("a1", "b1")
    shell.run_line_magic("pull", "a")
    assert shell.user_ns["a"] == {0: "a0", 1: "a1"}


def test_runs_lists_nothing_and_finds_nothing_in_an_empty_store(shell):
    assert "no runs yet" in repr(shell.run_line_magic("runs", ""))
    with pytest.raises(UsageError, match="`%runs show` needs the id or the name of a run; `%runs` lists the runs"):
        shell.run_line_magic("runs", "show")
    with pytest.raises(UsageError, match="%runs has no action 'delete'; use one of list, show, wait, stop"):
        shell.run_line_magic("runs", "delete all")
    with pytest.raises(UsageError, match=r"Did you mean 'show'\?"):
        shell.run_line_magic("runs", "shwo x")
    with pytest.raises(RunNotFoundError, match="No run 'x'"):
        shell.run_line_magic("runs", "wait x")
    with pytest.raises(NoClusterError):
        shell.run_line_magic("runs", "stop x")


def test_an_error_of_a_magic_stops_run_all(shell):
    result = shell.run_cell("%cluster status")
    assert isinstance(result.error_in_exec, NoClusterError)


@pytest.mark.parametrize(
    ("line", "elastic"),
    [
        ("--elastic", Elastic()),
        ("--elastic --min-ranks 2 --max-ranks 8 --lr-rule linear", Elastic(min_ranks=2, max_ranks=8, lr_rule="linear")),
        ("--elastic --hung 90", Elastic(hung=90.0)),
    ],
)
def test_a_run_is_elastic_on_request(shell, cluster, line, elastic):
    shell.run_cell_magic("distributed_train", line, "pass")
    assert cluster.calls == [("elastic", "pass", elastic)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--min-ranks 2", "--min-ranks is for elastic runs; add `--elastic`"),
        ("--elastic --min-ranks 0", "at least 1 rank"),
        ("--elastic --hung 0", "--hung 0 is not a valid time"),
    ],
)
def test_invalid_elastic_options_are_refused(shell, cluster, line, message):
    with pytest.raises(UsageError, match=message):
        shell.run_cell_magic("distributed_train", line, "pass")
    assert cluster.calls == []


def test_hyperparameters_of_a_line_are_python_literals_or_texts(shell, cluster):
    shell.run_cell_magic("distributed_train", "--config lr=1e-2 --config batch=64 --config name='a b'", "pass")
    assert cluster.calls == [("config", {"lr": 0.01, "batch": 64, "name": "a b"})]


def test_a_hyperparameter_needs_a_value(shell, cluster):
    with pytest.raises(UsageError, match=r"`--config lr` has no value; write for example `--config lr=0.01`"):
        shell.run_cell_magic("distributed_train", "--config lr", "pass")
    assert cluster.calls == []


@pytest.mark.parametrize("name", ["9x", "my-run", "class", "''"])
def test_a_run_is_not_started_for_an_impossible_variable(shell, cluster, name):
    with pytest.raises(UsageError, match=f"--output cannot be '?{name}'?: a variable's name has only letters"):
        shell.run_cell_magic("distributed_train", f"-o {name}", "pass")
    assert cluster.calls == []


@pytest.mark.parametrize(
    ("line", "name", "resume"),
    [
        ("", None, None),
        ("--resume", None, ""),
        ("--resume 2026", None, "2026"),
        ("--resume --name digits", "digits", ""),
        ("--name digits --resume first", "digits", "first"),
        ("--name \"my run\" --resume 'a b'", "my run", "a b"),
    ],
)
def test_a_run_resumes_the_last_one_or_a_named_one(shell, cluster, line, name, resume):
    shell.run_cell_magic("distributed_train", line, "pass")
    assert cluster.calls == [("train", "pass", name, resume)]


def test_the_line_magic_runs_a_file(shell, cluster, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("pass")
    shell.run_line_magic("distributed_train", "--name first train.py --epochs 3")
    options = {"line": "--name first train.py --epochs 3", "script": [str(tmp_path / "train.py"), "--epochs", "3"]}
    assert cluster.calls == [("script", "pass", "first", options)]


def test_a_missing_file_never_reaches_the_cluster(shell, cluster):
    with pytest.raises(UsageError, match="there is no file missing.py"):
        shell.run_line_magic("distributed_train", "missing.py")
    assert cluster.calls == []
