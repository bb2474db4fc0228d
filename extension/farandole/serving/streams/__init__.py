"""Scores records of streams with the model of an endpoint."""
