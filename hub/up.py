"""Run the hub in the foreground; Ctrl-C stops it and all its processes."""

from __future__ import annotations

import os
import signal
import sys

from hub.backup.swap import finish_at_start
from hub.process import HubProcess, HubProcessError
from spawner_config.settings import Settings, SettingsError, state_folder

NOTEBOOK = "01-first-distributed-training.ipynb"


def banner(hub: HubProcess) -> str:
    """Return the text that tells users how to log in."""
    return (
        f"\nFarandole is running.\n\n"
        f"  hub        {hub.url}\n"
        f"  user       any name\n"
        f"  password   {hub.password}   (kept in {hub.settings.password_file})\n"
        f"  notebook   {hub.url}/hub/user-redirect/lab/tree/{NOTEBOOK}\n"
        f"  log        {hub.log_path}\n\n"
        "Ctrl-C stops everything.\n"
    )


def stop_on_signals() -> None:
    """Handle SIGTERM and a closed terminal like Ctrl-C, and enable Ctrl-C, which background jobs of a shell ignore."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def main() -> int:
    """Start the hub and wait until it exits; return the exit status."""
    stop_on_signals()
    # Complete a restore that was killed, before anything reads the state.
    finish_at_start(state_folder(os.environ))
    try:
        hub = HubProcess(Settings.from_environment(os.environ))
    except (HubProcessError, SettingsError) as exc:
        print(exc, file=sys.stderr)
        return 1
    try:
        hub.wait_ready()
        print(banner(hub), flush=True)
        hub.process.wait()
        print(f"The hub ended unexpectedly.\n{hub.log_tail()}", file=sys.stderr)
        return 1
    except HubProcessError as exc:
        print(exc, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopping ...", flush=True)
        return 0
    finally:
        hub.stop()


if __name__ == "__main__":
    sys.exit(main())
