"""Faults that the lab can have: what each does, on which unit, with which value, and what must be found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UnitKind = Literal["node", "gpu", "nic", "switch", "port", "rank", "job", "agent", "model"]


@dataclass(frozen=True)
class FaultKind:
    """One kind of fault. ``default`` is the value when none is given; None means the kind takes no value."""

    name: str
    unit_kind: UnitKind
    doc: str
    default: str | None = None
    value_doc: str = ""


CATALOGUE: dict[str, FaultKind] = {
    k.name: k
    for k in (
        FaultKind("driver-version", "node", "the NVIDIA driver is another version", "570.148.08", "driver version"),
        FaultKind("nic-firmware", "nic", "the NIC runs an older firmware", "28.39.1002", "firmware version"),
        FaultKind("pcie-degraded", "gpu", "the GPU's PCIe link trained narrower", "8", "lanes"),
        FaultKind("nic-down", "nic", "the NIC's port is shut on the node; its switch port loses link"),
        FaultKind("link-flap", "nic", "the NIC lost carrier many times within the last day", "7", "number of losses"),
        FaultKind("remap-pending", "gpu", "a row remap is pending: the GPU needs a reset"),
        FaultKind("xid", "gpu", "the kernel logged an Xid for the GPU two hours ago", "79", "Xid number"),
        FaultKind("switch-mtu", "port", "the port's MTU line is gone or changed", "1500", "MTU in bytes"),
        FaultKind("switch-pfc", "port", "PFC is off on the port"),
        FaultKind("port-speed", "port", "the port runs at another speed", "200", "speed in Gb/s"),
        FaultKind("port-down", "port", "the port is shut down on the switch; its peer loses link"),
        FaultKind("miscabled", "port", "the cable is swapped with another port's", None, "the other port, e.g. swp3"),
        FaultKind("acl-line", "switch", "an ACL line that golden does not have"),
        FaultKind("port-errors", "port", "the port counts receive errors", "0.001", "errors per packet"),
        FaultKind("slow-rail", "nic", "the NIC carries less than its rate; no audit sees why", "20", "loss in percent"),
        FaultKind("slow-node", "node", "the node is slow on all rails; no audit sees why", "15", "loss in percent"),
        FaultKind("bad-leaf", "switch", "all traffic through the switch is slow", "15", "loss in percent"),
        FaultKind("delayed-rank", "rank", "gloo's rank is late in every collective, for real", "2000", "delay in us"),
        FaultKind("never-resumes", "job", "a worker of elastic training that is started again dies, for real"),
        FaultKind("lost-checkpoints", "job", "elastic training finds no checkpoint and starts at step 0, for real"),
        FaultKind("slow-node-check", "agent", "DLRover's node check is slow on it, for real", "20000", "delay in us"),
        FaultKind("corrupt-shard", "model", "a byte of its weights changes on the way to the server, for real"),
        FaultKind("flipped-bit", "model", "an exponent bit of a weight flips after the weights were hashed, for real"),
        FaultKind("wrong-model", "model", "another model is served, under its own name, for real"),
        FaultKind("server-errors", "model", "its server fails requests for tokens, for real", "5", "every n-th"),
        FaultKind("node-unreachable", "node", "the node refuses connections"),
        FaultKind("node-hanging", "node", "the node accepts the connection and never answers"),
    )
}

# What `make run` shows a newcomer, planted after a healthy baseline run: (kind, unit, value).
PLANTED: tuple[tuple[str, str, str | None], ...] = (
    ("switch-mtu", "leaf-2/Ethernet32", "1500"),
    ("nic-firmware", "gpu-007/mlx5_3", "28.39.1002"),
    ("nic-down", "gpu-012/mlx5_6", None),
)
