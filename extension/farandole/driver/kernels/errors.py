"""Combines the replies from all ranks into one readable error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from farandole.driver.kernels.replies import UNANSWERED, Reply
from farandole.driver.output import label
from farandole.exceptions import RankDiedError, RankError
from farandole.protocol import is_collective_failure

OUT_OF_MEMORY = ("OutOfMemoryError", "MemoryError")
"""The classes of errors if memory is too small: of torch for GPUs, and of Python."""
CPU_OUT_OF_MEMORY = "DefaultCPUAllocator: can't allocate memory"
"""Part of the message of torch's RuntimeError if the memory of a CPU is too small."""


def rank_error(
    replies: Sequence[Reply], *, doing: str = "the cell", advice: Mapping[int, str] | None = None
) -> RankError:
    """Return the error for a failed cell. ``advice`` has a sentence for each rank whose memory may be too small.

    - Deaths come first, followed by each distinct error once, in the order in which the errors occurred.
    - Next come the ranks that were killed because they did not respond to an interrupt.
    - Ranks that failed only because of another rank's failure come last, without their errors.
    """
    deaths = [reply for reply in replies if reply.status == "dead"]
    errors = sorted((reply for reply in replies if reply.status == "error"), key=lambda reply: reply.ended)
    groups = _groups(errors)
    causes = [group for group in groups if not _is_consequence(group[0])] or ([] if deaths else groups[:1])
    kind = RankDiedError if deaths else RankError
    stopped = [reply for reply in deaths if reply.evalue == UNANSWERED]
    advice = advice or {}
    lines = [_death(reply, advice.get(reply.rank, "")) for reply in deaths if reply not in stopped]
    lines += [_headline(group, advice.get(group[0].rank, "")) for group in causes]
    lines += [_death(reply, "") for reply in stopped]
    shown = {reply.rank for group in causes for reply in group} | {reply.rank for reply in deaths}
    if others := [reply.rank for reply in errors if reply.rank not in shown]:
        lines.append(f"{label(others)} waited for it and {'was' if len(others) == 1 else 'were'} released.")
    return kind(
        f"{doing} failed on " + "\n".join(lines),
        # Errors such as UsageError have a traceback of one line, which the message already contains.
        traceback="\n".join("\n".join(group[0].traceback) for group in causes if len(group[0].traceback) > 1),
        ranks=tuple(sorted(shown)),
    )


def _is_consequence(reply: Reply) -> bool:
    """Return whether an error follows from another rank's failure: an interrupt, or a collective that lost a peer."""
    return reply.ename == "KeyboardInterrupt" or is_collective_failure(reply.ename, reply.evalue)


def _groups(errors: Iterable[Reply]) -> list[list[Reply]]:
    groups: dict[tuple[str, str], list[Reply]] = {}
    for reply in errors:
        groups.setdefault((reply.ename, reply.evalue), []).append(reply)
    return list(groups.values())


def _headline(group: Sequence[Reply], advice: str) -> str:
    first = group[0]
    place = label([reply.rank for reply in group])
    where = f" (worker {first.worker})" if len(group) == 1 else ""
    return f"{place}{where}: {first.ename}: {first.evalue}{_remedy(group, place, advice)}"


def _remedy(group: Sequence[Reply], place: str, advice: str) -> str:
    if advice and (group[0].ename in OUT_OF_MEMORY or CPU_OUT_OF_MEMORY in group[0].evalue):
        return f" {advice}"
    if group[0].ename != "NameError" or not all(reply.late for reply in group):
        return ""
    was = "was" if len(group) == 1 else "were"
    return f". {place.capitalize()} {was} started after earlier cells; run the cell that defines the name again."


def _death(reply: Reply, advice: str) -> str:
    return (
        f"rank {reply.rank} (worker {reply.worker}): its process is gone, {reply.evalue}. The next cell starts a new "
        "rank in its place with empty variables; if memory was short, use a smaller batch or a larger profile."
        + (f" {advice}" if advice else "")
    )
