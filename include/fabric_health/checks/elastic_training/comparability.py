"""When two launches of elastic training may be compared: only when all of this is equal."""

from __future__ import annotations

from collections.abc import Mapping

from fabric_health.checks.check import Launch
from fabric_health.checks.elastic_training.launches import TOOL, injects_faults
from fabric_health.checks.elastic_training.settings import Asked, image_of
from fabric_health.site import Node, Site

UNKNOWN = "?"


def comparability(launch: Launch, wanted: Asked, workers: int, site: Site, versions: Mapping[str, str]) -> str:
    """Return the canonical key ``field=value;...``; what is not known is ``?``."""
    own, local = wanted.own, wanted.backend == "local"
    skus = {n.sku_name for n in site.nodes if isinstance(n, Node) and n.name in launch.spec.nodes}
    trains = injects_faults(launch.name)
    faults = wanted.faults if trains else ()
    parts = {
        "backend": wanted.backend,
        "workers": workers,
        "min_workers": wanted.min_workers if trains else workers - 1,
        "processes": launch.spec.ranks_per_node,
        "sku": "+".join(sorted(skus)) if skus else "machine" if local else UNKNOWN,
        "faults": "+".join(faults) or "none",
        "node_check": "yes" if own.node_check and not (local and trains) else "no",
        "exclude_straggler": "yes" if own.exclude_straggler else "no",
        "steps": UNKNOWN if wanted.steps is None else wanted.steps if trains else 0,
        "checkpoint_every": own.checkpoint_every,
        "max_restarts": own.max_restarts,
        "program": own.program if local else own.training[0],
        "dlrover": versions.get("dlrover", UNKNOWN),
        "torch": versions.get("torch", UNKNOWN),
        "image": "none" if local else image_of(site, TOOL) or UNKNOWN,
    }
    return ";".join(f"{k}={str(v).replace(';', ',').replace('=', ':')}" for k, v in parts.items())
