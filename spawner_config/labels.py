"""Labels of containers, services, networks, volumes, pods and images, which hub, engine filter and doctor share.

Standard library only: `make doctor` imports this module on machines without packages.
"""

HUB_LABEL = "farandole.hub"
"""The name of the hub that an object belongs to."""
USER_LABEL = "farandole.user"
"""The slug of the user's name."""
OWNER_LABEL = "farandole.owner"
"""The full name of the user that a network or volume belongs to; objects from earlier versions lack this label."""
CLUSTER_LABEL = "farandole.cluster"
VERSION_LABEL = "org.opencontainers.image.version"
