"""A file for each backbone: its settings, its network, and what is said of it, ``BACKBONE``."""
