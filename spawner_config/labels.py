"""Labels of containers, services, networks, volumes, pods and images, for the hub, engine filter and `make doctor`.

This module imports only the standard library, because `make doctor` uses it on machines without any packages.
"""

HUB_LABEL = "farandole.hub"
"""The label with the name of the hub to which an object belongs."""
USER_LABEL = "farandole.user"
"""The label with the slug of the user's name."""
OWNER_LABEL = "farandole.owner"
"""The label with the full name of the user to whom a network or volume belongs. Objects from earlier versions lack
it."""
CLUSTER_LABEL = "farandole.cluster"
DATA_LABELS, HAS_DATA = "farandole.data.", "yes"
"""The beginning of the labels of a swarm's nodes for the versions of data sets that they have, and their value."""
VERSION_LABEL = "org.opencontainers.image.version"
MODEL_LABEL = "farandole.model"
"""The label of images of models, with the name and the version of the model."""
SERVING_LABEL = "farandole.version"
"""The label with the version of Farandole in serving images and in images of models, which also have versions."""
