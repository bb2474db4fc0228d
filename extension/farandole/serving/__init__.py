"""The process of an endpoint: it serves a model of the model store over HTTP, with the Open Inference Protocol.

It runs in an environment of its own, because the requirements of KServe exclude versions that notebooks use. Only
`farandole.serving.command` runs in the environment of notebooks.
"""

CACHE_SECONDS = 5
"""For this time, the hub is not asked again about a token. A revoked token works for no longer.

WebSockets to a command that are open already end at most half of this time later.
"""
