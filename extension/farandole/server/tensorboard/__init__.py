"""TensorBoard of all runs in the run store, at ``tensorboard/`` of a user's server.

jupyter-server-proxy checks the login, and starts TensorBoard in a process of its own when the page is first opened.
"""
