"""The users who publish versions of data sets."""

from __future__ import annotations

from typing import Any

from farandole.datasets.versions.publish import PUBLISH_TO

from spawner_config.models import Variables, Words
from spawner_config.roles import is_notebook


class Publishers(Variables):
    """FARANDOLE_DATA_PUBLISHERS."""

    data_publishers: Words = ()

    @property
    def names(self) -> frozenset[str]:
        """The names of the users."""
        # JupyterHub converts user names to lower case.
        return frozenset(name.lower() for name in self.data_publishers)

    def variables(self, spawner: Any, place: str) -> dict[str, str]:
        """Return the variable with the place where a user publishes, for notebook servers of publishers."""
        return {PUBLISH_TO: place} if is_notebook(spawner.name) and spawner.user.name in self.names else {}
