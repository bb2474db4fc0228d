"""Tests of keys that are not written to the disk, and of what Dask logs."""

import logging
import os
import ssl
import tempfile

import dask
import psutil
import pytest
from distributed import Security
from farandole.driver.data.certificate import credentials, new_security
from farandole.files.dask_settings import MemorySecurity, log_errors_only


@pytest.fixture
def no_files(monkeypatch):
    """Let every attempt to make a temporary file or folder fail."""

    def refuse(*_arguments, **_options):
        raise PermissionError("no temporary files")

    for name in ("mkdtemp", "mkstemp", "TemporaryDirectory", "TemporaryFile", "NamedTemporaryFile"):
        monkeypatch.setattr(tempfile, name, refuse)


@pytest.fixture
def logger():
    logger = logging.getLogger("distributed")
    before = logger.level
    yield logger
    logger.setLevel(before)


def contexts(security):
    """Return the contexts of all connections of a cluster."""
    ways = (security.get_connection_args, security.get_listen_args)
    return [arguments(role)["ssl_context"] for arguments in ways for role in ("scheduler", "worker", "client")]


def test_no_key_is_written_to_the_disk_by_the_driver_or_a_rank(no_files):
    security = new_security()
    for own in (security, MemorySecurity(**credentials(security))):
        assert [context.verify_mode for context in contexts(own)] == [ssl.CERT_REQUIRED] * 6
    with pytest.raises(PermissionError):
        contexts(Security(require_encryption=True, **credentials(security)))


def test_no_file_in_memory_stays_open():
    security, process = new_security(), psutil.Process()
    before = process.num_fds()
    contexts(security)
    assert process.num_fds() == before


def test_a_key_that_does_not_fit_is_refused():
    other = credentials(new_security())["tls_worker_key"]
    security = MemorySecurity(**credentials(new_security()) | {"tls_worker_key": other})
    with pytest.raises(ssl.SSLError, match="KEY_VALUES_MISMATCH"):
        security.get_connection_args("worker")


def test_systems_without_files_in_memory_use_temporary_folders(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    assert len(contexts(new_security())) == 6


def test_dask_logs_errors_only(logger):
    logger.setLevel(logging.INFO)
    log_errors_only()
    assert logger.level == logging.ERROR


@pytest.mark.parametrize(
    "own",
    [
        {"logging": {"distributed": "info"}},
        {"distributed.logging": {"version": 1}},
        {"logging-file-config": "/home/ada/logging.ini"},
    ],
)
def test_what_the_user_lets_dask_log_does_not_change(logger, own):
    logger.setLevel(logging.INFO)
    with dask.config.set(own):
        log_errors_only()
    assert logger.level == logging.INFO
