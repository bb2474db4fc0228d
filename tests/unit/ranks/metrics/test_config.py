"""Tests for `fd.config`."""

from types import SimpleNamespace

import pytest
from farandole.exceptions import UsageError
from farandole.protocol import Kind
from farandole.ranks import control, run
from farandole.ranks.kernel import exits
from farandole.ranks.metrics import reporter
from farandole.ranks.metrics.config import config


@pytest.fixture
def records():
    """The records that this process sends during a run."""
    found = []
    reporter.current().connect(lambda data, _buffers=None: found.extend(data["records"]))
    yield found
    reporter.current().close()
    reporter.current.cache_clear()
    run.current.cache_clear()


def begin(**overrides):
    reporter.current().begin("r")
    run.current().begin("", "", overrides)


def sent(records, kind=Kind.CONFIG):
    return [record.get("values", record.get("text")) for record in records if record["kind"] == kind]


def test_the_values_are_returned_and_sent(records):
    begin()
    hp = config(lr=0.1, batch=64)
    assert hp["lr"] == 0.1
    assert config(lr=0.2) == {"lr": 0.2}
    assert sent(records) == [{"lr": 0.1, "batch": 64}, {"lr": 0.2}]


def test_the_line_replaces_values_of_the_cell(records):
    begin(lr=0.01)
    assert config(lr=0.1, batch=64) == {"lr": 0.01, "batch": 64}
    assert config(lr=0.3) == {"lr": 0.01}
    assert sent(records) == [{"lr": 0.01, "batch": 64}, {"lr": 0.01}]


def test_other_ranks_send_nothing(records, monkeypatch):
    monkeypatch.setenv("FARANDOLE_RANK", "1")
    begin(lr=0.01)
    assert config(lr=0.1) == {"lr": 0.01}
    run.current().end()
    assert sent(records) == sent(records, Kind.NOTICE) == []


def test_outside_a_run_the_values_are_only_checked(records):
    assert config(lr=0.1) == {"lr": 0.1}
    with pytest.raises(UsageError, match="'lr' cannot be \\[1\\]"):
        config(lr=[1])
    for number in range(300):
        config(**{f"p{number}": number})
    assert records == []


def test_a_run_has_at_most_200_names(records):
    begin(lr=0.01)
    config(**{f"p{number}": number for number in range(199)})
    with pytest.raises(UsageError, match="at most 200 hyper-parameters, not 201"):
        config(one_more=1)
    assert len(sent(records)) == 1


def test_an_option_that_the_cell_does_not_use_is_noticed(records):
    begin(lr=0.01, batch_sise=32)
    config(lr=0.1, batch_size=64)
    run.current().end()
    [notice] = sent(records, Kind.NOTICE)
    assert notice.startswith("--config batch_sise has changed nothing, because the cell did not call fd.config(batch_")
    assert notice.endswith("Did you mean 'batch_size'?")
    assert records[-1]["warning"] is True


@pytest.mark.parametrize(("succeeded", "notices"), [(True, 1), (False, 0)])
def test_a_cell_that_has_failed_gets_no_notice_about_unused_options(records, monkeypatch, succeeded, notices):
    monkeypatch.setattr(exits, "get_ipython", lambda: SimpleNamespace(last_execution_succeeded=succeeded))
    begin(lr=0.01)
    control.end()
    assert len(sent(records, Kind.NOTICE)) == notices


def test_the_next_run_has_no_values_of_the_last_one(records):
    begin(lr=0.01)
    run.current().end()
    begin()
    assert config(lr=0.1) == {"lr": 0.1}
