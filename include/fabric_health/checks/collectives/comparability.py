"""When two collective measurements may be compared: only when all of this is equal."""

from __future__ import annotations

from fabric_health.checks.collectives.tables import Collective

FIELDS: tuple[str, ...] = (
    "engine", "tool_version", "library_version", "sku", "group_kind", "nodes", "ranks", "ranks_per_node", "collective",
    "dtype", "redop", "root", "size_bytes", "in_place", "timing", "transport", "algorithm", "protocol", "nvls", "sharp",
)  # fmt: skip
"""Host names are not among them: a node's peers are other hosts, and a replaced node is what one wants to compare."""


def comparability(row: Collective) -> str:
    """Return the canonical key ``field=value;...``; what is not known is ``?`` and equals only itself."""
    return ";".join(f"{name}={_text(getattr(row, name))}" for name in FIELDS)


def peer_key(row: Collective) -> str:
    """Return the key within which units of one run are peers: all but the transport, which they must share.

    A node whose GPUs lost NVLink logs another transport; leaving it out of its peers would hide it.
    """
    return ";".join(f"{name}={_text(getattr(row, name))}" for name in FIELDS if name != "transport")


def _text(value: object) -> str:
    if value is None:
        return "?"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.replace(";", ",").replace("=", ":")
