"""Cuts a model into stages, each of which a rank trains, for models that do not fit on one rank."""
