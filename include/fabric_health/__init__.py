"""fabric-health: what changed in a GPU cluster, did it hurt, where exactly, and how sure are we."""

__version__ = "0.1.0"
