"""The options form of the spawn page: profiles as radio buttons, with the number of free GPUs."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from spawner_config.roles import is_endpoint, is_worker

if TYPE_CHECKING:
    from spawner_config.gpus.pool import GpuPool
    from spawner_config.profiles.profiles import Profile, ProfileSet

STYLE = """<style>
.farandole-profile { display: flex; gap: .9rem; align-items: baseline; padding: .8rem 1rem; margin-bottom: .6rem;
  border: 1px solid rgba(128, 128, 128, .35); border-radius: .5rem; cursor: pointer; font-weight: normal; }
.farandole-profile:hover { border-color: #f37524; }
.farandole-profile:has(input:checked) { border-color: #f37524; box-shadow: inset 0 0 0 1px #f37524; }
.farandole-profile input { accent-color: #f37524; }
.farandole-profile small { display: block; opacity: .75; }
</style>"""


def options_form(profile_set: ProfileSet, spawner: Any, *, memory: str | None = None) -> str:
    """Return the HTML of the options form.

    ``memory`` is the memory limit of profiles without a limit of their own; None if the servers are local processes,
    which have no limit.
    """
    if is_worker(spawner.name):
        return "<p>This is a worker of a cluster. Start it from a notebook: <code>%cluster start</code></p>"
    if is_endpoint(spawner.name):
        return "<p>This is an endpoint. Start it from a notebook: <code>%serve</code></p>"
    chosen = spawner.user_options.get("profile", profile_set.default.name)
    gone = "" if any(profile.name == chosen for profile in profile_set.profiles) else _gone(chosen)
    chosen = profile_set.default.name if gone else chosen
    # A GPU pool exists only if servers run in containers on one machine.
    pool: GpuPool | None = getattr(spawner, "gpu_pool", None)
    buttons = "\n".join(
        _button(profile, describe_size(profile, pool, memory=memory), checked=profile.name == chosen)
        for profile in profile_set.profiles
    )
    wait = _wait_box(spawner) if pool and any(profile.gpus for profile in profile_set.profiles) else ""
    return f'{STYLE}\n<fieldset>\n<legend class="h5">Profile</legend>\n{gone}{buttons}\n{wait}</fieldset>'


def options_from_form(form: dict[str, list[str]]) -> dict[str, Any]:
    """Return the user options that a submitted form selects."""
    profile = {"profile": form["profile"][0]} if form.get("profile") else {}
    return {**profile, "wait": True} if form.get("wait") else profile


def describe_size(profile: Profile, pool: GpuPool | None = None, *, memory: str | None = None) -> str:
    """Describe the size of a profile's servers, including the number of GPUs that are currently free.

    ``memory`` is that of `options_form`.
    """
    parts = [f"{profile.ranks} rank{'s' if profile.ranks > 1 else ''} per worker"]
    cpus = profile.cpus
    parts.append("no CPU limit" if cpus is None else f"{cpus:g} CPU{'s' if cpus > 1 else ''}")
    limit = memory and (profile.memory or memory)
    # "4G" means 4 GiB, as in Docker and JupyterHub.
    parts.append(f"{limit[:-1]} {limit[-1]}iB memory" if limit else "no memory limit")
    if profile.gpus:
        kind = f" {profile.gpu_class}" if profile.gpu_class else ""
        parts.append(f"{profile.gpus} GPU{'s' if profile.gpus > 1 else ''}{kind}")
    if profile.gpus and pool:
        waiting = len(pool.waiting(profile.gpu_class))
        queue = f", {waiting} waiting" if waiting else ""
        parts.append(f"{pool.free(profile.gpu_class)} of {pool.total(profile.gpu_class)} free{queue}")
    return " · ".join(parts)


def _gone(name: object) -> str:
    return (
        f'<p class="alert alert-warning">Your last server had the profile {escape(str(name))}, which no longer exists. '
        "Choose one of these.</p>\n"
    )


def _wait_box(spawner: Any) -> str:
    checked = " checked" if spawner.user_options.get("wait") else ""
    return (
        f'<label><input type="checkbox" name="wait" value="yes"{checked}> Wait in the queue if no GPU is free</label>\n'
    )


def _button(profile: Profile, size: str, *, checked: bool) -> str:
    return (
        f'<label class="farandole-profile"><input type="radio" name="profile" value="{escape(profile.name)}"'
        f"{' checked' if checked else ''}><span><strong>{escape(profile.name)}</strong> {escape(profile.description)}"
        f"<small>{escape(size)}</small></span></label>"
    )
