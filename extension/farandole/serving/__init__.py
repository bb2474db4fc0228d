"""The process of an endpoint: it serves a model of the model store over HTTP, with the Open Inference Protocol.

It runs in an environment of its own, because the requirements of KServe exclude versions that notebooks use.
"""
