"""The magic ``%snapshot``."""
