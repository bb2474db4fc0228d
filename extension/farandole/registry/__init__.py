"""Model versions as container images in a registry: what `%models publish` writes, and how it is written."""
