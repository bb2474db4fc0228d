"""Typed stubs for `farandole.ranks.control`, which contains all functions that a driver calls on ranks.

Each function here has the same name and parameters as its counterpart there. Instead of making the call, it returns the
call as an expression for the rank's kernel. As a result, mypy can check calls that are sent as text, and the driver
does not need to import packages such as torch that only ranks need. `tests/unit/driver/kernels/test_rank_calls.py`
checks that both modules agree.
"""
# ruff: noqa: D103 (`farandole.ranks.control` documents each function)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from farandole.hyperparameters import Hyperparameter

T = TypeVar("T")


@dataclass(frozen=True)
class RankCall(Generic[T]):
    """A call to a function in `farandole.ranks.control` that returns a T. Arguments and result are JSON values."""

    function: str
    arguments: tuple[object, ...] = ()

    @property
    def expression(self) -> str:
        """The call as a Python expression.

        The expression evaluates to the result as JSON, and does not bind a name in the user's namespace.
        """
        arguments = ", ".join(map(repr, self.arguments))
        module = "__import__('farandole.ranks.control', fromlist=['_'])"
        return f"__import__('json').dumps({module}.{self.function}({arguments}))"


def prepare(environment: dict[str, str]) -> RankCall[None]:
    return RankCall("prepare", (environment,))


def preload(backend: str) -> RankCall[dict[str, dict[str, str]]]:
    return RankCall("preload", (backend,))


def form(environment: dict[str, str]) -> RankCall[None]:
    return RankCall("form", (environment,))


def leave() -> RankCall[None]:
    return RankCall("leave")


def abandon() -> RankCall[None]:
    return RankCall("abandon")


def open_store(host: str) -> RankCall[int]:
    return RankCall("open_store", (host,))


def begin(
    run_id: str,
    folder: str = "",
    resume: str = "",
    lr_rule: str = "",
    overrides: Mapping[str, Hyperparameter] | None = None,
) -> RankCall[None]:
    return RankCall("begin", (run_id, folder, resume, lr_rule, overrides))


def run_script(code: str, path: str, arguments: list[str]) -> RankCall[None]:
    return RankCall("run_script", (code, path, arguments))


def end() -> RankCall[None]:
    return RankCall("end")


def mark_world_broken(interrupted: bool = False) -> RankCall[None]:
    return RankCall("mark_world_broken", (interrupted,))


def pause_at_next_commit() -> RankCall[int]:
    return RankCall("pause_at_next_commit")


def leave_at_commit(commits: int) -> RankCall[None]:
    return RankCall("leave_at_commit", (commits,))


def join(environment: dict[str, str]) -> RankCall[None]:
    return RankCall("join", (environment,))


def waits() -> RankCall[bool]:
    return RankCall("waits")


def identity() -> RankCall[dict[str, Any]]:
    return RankCall("identity")


def activity() -> RankCall[dict[str, Any]]:
    return RankCall("activity")


def describe() -> RankCall[dict[str, Any]]:
    return RankCall("describe")


def clock() -> RankCall[float]:
    return RankCall("clock")


def all_reduce() -> RankCall[list[list[float]]]:
    return RankCall("all_reduce")


def measure_model(model: str, batch: str) -> RankCall[dict[str, Any]]:
    return RankCall("measure_model", (model, batch))


def fit_model(model: str) -> RankCall[dict[str, Any]]:
    return RankCall("fit_model", (model,))


def save_variable(
    model: str, name: str, run_id: str, example: str, options: dict[str, Any]
) -> RankCall[dict[str, str]]:
    return RankCall("save_variable", (model, name, run_id, example, options))


def predict_modes(figures: dict[str, float], overheads: list[dict[str, list[float]]]) -> RankCall[list[dict[str, Any]]]:
    return RankCall("predict_modes", (figures, overheads))


def open_listener(host: str) -> RankCall[dict[str, Any]]:
    return RankCall("open_listener", (host,))


def serve(seconds: float) -> RankCall[dict[str, Any]]:
    return RankCall("serve", (seconds,))


def dial(host: str, port: int, seconds: float) -> RankCall[dict[str, Any]]:
    return RankCall("dial", (host, port, seconds))


def accept(key: str, python: str) -> RankCall[None]:
    return RankCall("accept", (key, python))


def accept_broadcast(key: str, python: str) -> RankCall[None]:
    return RankCall("accept_broadcast", (key, python))


def give(names: list[str]) -> RankCall[None]:
    return RankCall("give", (names,))


def file_names(folder: str, key: str, number: int, most: int) -> RankCall[list[tuple[str, int | None]]]:
    return RankCall("file_names", (folder, key, number, most))


def file_contents(folder: str, wanted: list[tuple[str, int, int]]) -> RankCall[list[list[Any] | str]]:
    return RankCall("file_contents", (folder, wanted))


def read_pieces(folder: str, wanted: list[tuple[str, int]]) -> RankCall[list[list[str] | str]]:
    return RankCall("read_pieces", (folder, wanted))


def differing_pieces(
    folder: str, files: list[tuple[str, int, list[str], int | None]]
) -> RankCall[list[list[int] | str | None]]:
    return RankCall("differing_pieces", (folder, files))


def write_pieces(
    folder: str, key: str, push: int, parts: list[tuple[str, int, int, str, int]]
) -> RankCall[list[str | None] | None]:
    return RankCall("write_pieces", (folder, key, push, parts))


def finish_files(
    folder: str, files: list[tuple[str, str, int, int]], complete: list[str]
) -> RankCall[list[str | None]]:
    return RankCall("finish_files", (folder, files, complete))


def start_data_worker(scheduler: str, security: dict[str, str], pauses: bool) -> RankCall[str]:
    return RankCall("start_data_worker", (scheduler, security, pauses))


def end_data_worker(scheduler: str) -> RankCall[None]:
    return RankCall("end_data_worker", (scheduler,))


def set_data_pauses(pauses: bool) -> RankCall[None]:
    return RankCall("set_data_pauses", (pauses,))
