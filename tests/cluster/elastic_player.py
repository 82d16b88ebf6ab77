"""Plays DLRover: its controller, which makes a master's pod, and the master, which makes and replaces workers' pods.

Names, labels, environment and the silent refusal of an incomplete template are DLRover's (``go/elasticjob/pkg``,
``dlrover/python/master/scaler/pod_scaler.py``). Training itself is not played: workers' commands really run.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fabric_health.jobs.kubernetes.kinds import ELASTIC_JOB

if TYPE_CHECKING:
    from player import Player

Json = dict[str, Any]
MASTER_SAYS = b"""[2026-11-30 03:00:01,000] [INFO] network-check round 0: The node status are: {0: True, 1: True}.
[2026-11-30 03:00:21,000] [INFO] The node elapsed time are {0: 20.3, 1: 20.1}
"""


@dataclass
class Dlrover:
    """What goes wrong, and what is known of each job."""

    makes_workers: bool = True
    relaunches: bool = True
    # The labels of newer documentation, which DLRover's code does not set.
    labels: bool = True
    phase: str = "Running"
    jobs: dict[str, dict[int, int]] = field(default_factory=dict)
    next_ids: dict[str, int] = field(default_factory=dict)

    def reconcile(self, player: Player, obj: Json, pods: list[Json]) -> None:
        """Do one turn of controller and master for one job."""
        uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
        master_name = f"elasticjob-{name}-dlrover-master"
        master = next((p for p in pods if p["metadata"]["name"] == master_name), None)
        if ELASTIC_JOB.state(obj).phase.final:
            return
        if master is None:
            player.logs.setdefault(master_name, MASTER_SAYS)
            player.core.create_namespaced_pod(player.namespace, _master(obj, master_name))
            return
        if (master.get("status") or {}).get("phase") != "Running":
            return
        if (obj.get("status") or {}).get("phase") != self.phase:
            player.set_status(ELASTIC_JOB, name, {"phase": self.phase})
        worker = obj["spec"]["replicaSpecs"]["worker"]
        template = worker["template"]
        said = (template.get("metadata") or {}).get("labels") and template["spec"].get("restartPolicy")
        if not self.makes_workers or not said:
            return
        workers = [p for p in pods if p is not master]
        relaunched = self.jobs.setdefault(uid, {})
        for rank in range(worker["replicas"]):
            if any(_rank(p) == rank and not p["metadata"].get("deletionTimestamp") for p in workers):
                continue
            if rank in relaunched and (not self.relaunches or relaunched[rank] >= worker["restartCount"]):
                continue
            relaunched[rank] = relaunched.get(rank, -1) + 1
            number = self.next_ids[uid] = self.next_ids.get(uid, -1) + 1
            player.core.create_namespaced_pod(player.namespace, self._worker(obj, number, rank, relaunched[rank]))
            return
        phases = {(p.get("status") or {}).get("phase", "Pending") for p in workers}
        if phases and phases <= {"Succeeded", "Failed"}:
            player.set_status(ELASTIC_JOB, name, {"phase": "Failed" if "Failed" in phases else "Succeeded"})

    def _worker(self, obj: Json, number: int, rank: int, relaunched: int) -> Json:
        name = obj["metadata"]["name"]
        template = copy.deepcopy(obj["spec"]["replicaSpecs"]["worker"]["template"])
        dlrover = {
            "elasticjob.dlrover/name": name,
            "elasticjob.dlrover/replica-type": "worker",
            "elasticjob.dlrover/replica-index": str(number),
            "elasticjob.dlrover/rank-index": str(rank),
            "elasticjob.dlrover/relaunch-count": str(relaunched),
        }
        told = {"NODE_ID": number, "NODE_RANK": rank, "NODE_NUM": obj["spec"]["replicaSpecs"]["worker"]["replicas"]}
        (main,) = [c for c in template["spec"]["containers"] if c["name"] == "main"]
        main["env"] = [*main.get("env", ()), *({"name": k, "value": str(v)} for k, v in told.items())]
        labels = {"app": "dlrover", **template["metadata"]["labels"], **(dlrover if self.labels else {})}
        metadata = {"name": f"{name}-edljob-worker-{number}", "labels": labels, "ownerReferences": [_owner(obj)]}
        # The player that runs it knows a pod's rank by this, whatever its labels are.
        return {
            "metadata": {**metadata, "annotations": {"player/rank": str(rank)}},
            "spec": {**template["spec"], "restartPolicy": "Never"},
        }


def _master(obj: Json, name: str) -> Json:
    labels = {
        **obj["metadata"].get("labels", {}),
        "elasticjob.dlrover/name": obj["metadata"]["name"],
        "elasticjob.dlrover/replica-type": "dlrover-master",
        "elasticjob.dlrover/replica-index": "0",
    }
    command = ["/bin/bash", "-c", f"python -m dlrover.python.master.main --job_name {obj['metadata']['name']}"]
    container = {"name": "main", "image": "registry.example.org/dlrover-master:1", "command": command}
    return {
        "metadata": {"name": name, "labels": labels, "ownerReferences": [{**_owner(obj), "controller": True}]},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def _owner(obj: Json) -> Json:
    return {
        "apiVersion": ELASTIC_JOB.api_version,
        "kind": ELASTIC_JOB.kind,
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        "blockOwnerDeletion": True,
    }


def _rank(pod: Json) -> int:
    return int((pod["metadata"].get("annotations") or {}).get("player/rank", -1))
