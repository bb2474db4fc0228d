"""The magics ``%models`` and ``%serve``."""
