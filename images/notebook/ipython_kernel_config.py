"""The configuration of notebook kernels in this project's environments, which know the magics without `%load_ext`."""

import os

c = get_config()  # noqa: F821 - IPython defines it

# The kernels of workers are ranks, and need no magics.
if "FARANDOLE_WORKER" not in os.environ:
    c.InteractiveShellApp.extensions.append("farandole.notebook.autoload")
