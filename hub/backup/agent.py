"""`python -m hub.backup.agent`: do one step of a backup where the hub's volumes are.

It reads a `Job` from its standard input, writes the result as JSON to its standard output, and reports on its standard
error what it does. The job comes in this way because it contains secrets.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from hub.backup.job import CHOOSE, COMMIT, LIST, SAVE, STAGE, Job
from hub.backup.place import BackupError
from hub.backup.restore import choose, commit_state, list_backups, stage_all
from hub.backup.save import save


def perform(job: Job) -> dict[str, Any]:
    """Do the step, and return its result; raises `BackupError` or OSError."""
    if job.action == SAVE:
        return {"manifest": save(job).to_json()}
    return {CHOOSE: choose, STAGE: stage_all, COMMIT: commit_state, LIST: list_backups}[job.action](job)


def main() -> int:
    """Do the step of the job on standard input."""
    try:
        result = perform(Job.from_json(sys.stdin.read()))
    except (BackupError, OSError) as exc:
        result = {"error": str(exc)}
    print(json.dumps(result))
    return 1 if "error" in result else 0


if __name__ == "__main__":
    sys.exit(main())
