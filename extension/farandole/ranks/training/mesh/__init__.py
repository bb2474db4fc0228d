"""Shards a model over the ranks of a mesh, for models that do not fit on one rank."""
