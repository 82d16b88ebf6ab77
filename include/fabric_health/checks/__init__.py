"""The checks and their registry. A new check is one folder here and one line in ``registry.py``."""
