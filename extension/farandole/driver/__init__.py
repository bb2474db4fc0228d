"""The driver: the part of Farandole that runs in a notebook's kernel and leads a cluster."""
