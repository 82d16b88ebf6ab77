"""What a lab node answers: the real tools' output for the node that the site file describes, with its faults.

The one public function is :func:`answer`. It is pure: equal arguments give equal answers, and nothing is read or
written. What can be asked is what ``checks.driver_firmware.commands`` asks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime

from fabric_health.lab.answer import Answer, not_installed
from fabric_health.lab.nodes import firmware, hardware, host, kernel_log, netdev, nvidia_smi, rdma, storage
from fabric_health.lab.nodes.hardware import Hardware
from fabric_health.lab.state import Fault, LabState
from fabric_health.site import Cable, Node, Site

__all__ = ["answer"]

_Tool = Callable[[Hardware, tuple[str, ...], datetime], Answer]
_KEPT = 4_096


def answer(node: Node, site: Site, state: LabState, argv: tuple[str, ...], now: datetime) -> Answer:
    """Return what ``node`` answers to ``argv`` at ``now`` (UTC), with the faults that are active in ``state``."""
    if not argv:
        return Answer(stderr="no command\n", exit_code=127)
    program, arguments = argv[0], argv[1:]
    here = _hardware(node, site, state)
    tool = _TOOLS.get(program)
    if tool is None or not _installed(program, here):
        return not_installed(program)
    return tool(here, arguments, now)


def _installed(program: str, here: Hardware) -> bool:
    """Return False for the tools of hardware that the node's SKU lacks."""
    sku = here.node.sku
    if program == "nv-fabricmanager":
        return bool(here.gpus) and sku.has_fabric_manager
    needs = {
        "nvidia-smi": here.gpus,
        "ibstat": here.nics,
        "ibv_devinfo": here.nics,
        "mlxfwmanager": here.nics,
        "mstflint": here.nics,
        "ofed_info": here.nics,
        "smartctl": here.drives,
    }
    return bool(needs.get(program, True))


def _timeless(tool: Callable[[Hardware, tuple[str, ...]], Answer]) -> _Tool:
    """Adapt a tool whose answer does not depend on the time."""
    return lambda here, arguments, _now: tool(here, arguments)


_TOOLS: dict[str, _Tool] = {
    "nvidia-smi": nvidia_smi.answer,
    "nv-fabricmanager": _timeless(nvidia_smi.fabric_manager),
    "ibstat": _timeless(rdma.answer_ibstat),
    "ibv_devinfo": _timeless(rdma.answer_ibv_devinfo),
    "rdma": _timeless(rdma.answer_rdma),
    "ip": netdev.answer_ip,
    "ethtool": netdev.answer_ethtool,
    "mlxfwmanager": _timeless(firmware.answer_mlxfwmanager),
    "mstflint": _timeless(firmware.answer_mstflint),
    "ofed_info": _timeless(firmware.answer_ofed_info),
    "dpkg-query": _timeless(firmware.answer_dpkg_query),
    "rpm": _timeless(firmware.answer_rpm),
    "uname": _timeless(host.answer_uname),
    "cat": _timeless(host.answer_cat),
    "grep": host.answer_grep,
    "ls": _timeless(host.answer_ls),
    "lspci": _timeless(host.answer_lspci),
    "systemctl": _timeless(host.answer_systemctl),
    "smartctl": storage.answer,
    "journalctl": kernel_log.answer_journal,
    "dmesg": kernel_log.answer_dmesg,
}


class _Kept:
    """The last nodes built, so that a node's dozens of commands build it once.

    Keys are identities, which are safe because the entry itself keeps the objects alive.
    """

    def __init__(self) -> None:
        self.plans: OrderedDict[tuple[int, int], tuple[Node, Site, dict[str, Cable]]] = OrderedDict()
        self.built: OrderedDict[tuple[int, int], tuple[Node, Site, datetime, tuple[Fault, ...], Hardware]] = (
            OrderedDict()
        )

    def plan(self, node: Node, site: Site) -> dict[str, Cable]:
        key = (id(node), id(site))
        if key not in self.plans:
            self.plans[key] = (node, site, hardware.cables(node, site))
            while len(self.plans) > _KEPT:
                self.plans.popitem(last=False)
        return self.plans[key][2]


_KEPT_NODES = _Kept()


def _hardware(node: Node, site: Site, state: LabState) -> Hardware:
    plan = _KEPT_NODES.plan(node, site)
    faults = hardware.relevant(node, plan, state)
    key = (id(node), id(site))
    known = _KEPT_NODES.built.get(key)
    if known is not None and known[2] == state.up_since and known[3] == faults:
        return known[4]
    built = hardware.build(node, plan, state)
    _KEPT_NODES.built[key] = (node, site, state.up_since, faults, built)
    while len(_KEPT_NODES.built) > _KEPT:
        _KEPT_NODES.built.popitem(last=False)
    return built
