"""Drift of many large configs, against netutils alone and difflib on the same texts.

Builds configs of 1,000 interfaces on the five platforms, changes about 1 % of the lines of each running copy (a value,
a dropped line, an extra line, and on top blocks in another order and new time stamps, which are no drift), and measures
wall time per config for:

* fabric-health: normalise both, drift with parents, port, topic and remediation commands;
* netutils: `diff_network_config` in both directions (missing and extra lines; CLI platforms only);
* difflib: `unified_diff` of the raw texts.

"changed" counts the lines and leaves really changed, "reported" the entries each method gives for them: an exact report
has one entry a change. Exit status 1 when ours is not exact.

    python bench/drift.py [--configs 1000] [--interfaces 1000] [--seed 1]
"""

from __future__ import annotations

import argparse
import difflib
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from netutils.config.compliance import diff_network_config
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fabric_health.checks.switch_config.drift import drift
from fabric_health.checks.switch_config.normalise import normalise
from fabric_health.site import Platform

PLATFORMS: tuple[Platform, ...] = ("eos", "nxos", "onyx", "sonic", "cumulus")
NETUTILS = {"eos": "arista_eos", "nxos": "cisco_nxos", "onyx": "nvidia_onyx"}
DRIFT_SHARE = 0.01


@dataclass(frozen=True)
class Case:
    """A golden and a running config, and how many lines or leaves of the running one were really changed."""

    golden: str
    running: str
    changes: int


def cli_case(platform: Platform, interfaces: int, rng: random.Random) -> Case:
    """Build a CLI config: one block per interface (flat lines on Onyx)."""
    lines = {i: cli_lines(platform, i) for i in range(1, interfaces + 1)}
    changed = {i: list(block) for i, block in lines.items()}
    every = [(i, k) for i, block in lines.items() for k in range(1, len(block))]
    picked = rng.sample(every, max(1, int(len(every) * DRIFT_SHARE)))
    for i, k in sorted(picked, reverse=True):
        kind = rng.randrange(3)
        if kind == 0:
            changed[i][k] = CHANGED_VALUE[platform](changed[i][k])
        elif kind == 1:
            del changed[i][k]
        else:
            changed[i].append(EXTRA_LINE[platform](i, k))
    order = list(changed)
    rng.shuffle(order)
    golden = cli_text(platform, [lines[i] for i in lines], "2026/11/02 10:00:00")
    running = cli_text(platform, [changed[i] for i in order], "2026/11/30 10:00:00")
    return Case(golden, running, len(picked))


def cli_lines(platform: Platform, i: int) -> list[str]:
    """Return the lines of one interface, header first."""
    if platform == "onyx":
        port = f"   interface ethernet 1/{i}"
        return [
            f"   vlan {i + 1}",
            f"{port} mtu 9216 force",
            f"{port} speed 400G force",
            f"{port} switchport access vlan {i % 100 + 1}",
            f"{port} load-interval 30",
            f"{port} lacp port-priority 7",
        ]
    pad = "   " if platform == "eos" else "  "
    mtu = 9214 if platform == "eos" else 9216
    return [
        f"interface Ethernet{i}/1",
        f"{pad}mtu {mtu}",
        f"{pad}speed 400g" if platform == "eos" else f"{pad}speed 400000",
        f"{pad}switchport access vlan {i % 100 + 1}",
        f"{pad}load-interval 30",
        f"{pad}lacp port-priority 7",
    ]


def other_value(line: str) -> str:
    """Return the line with another value."""
    forced = line.endswith(" force")
    return line.removesuffix(" force") + "9" + (" force" if forced else "")


CHANGED_VALUE: dict[str, Callable[[str], str]] = dict.fromkeys(("eos", "nxos", "onyx"), other_value)
EXTRA_LINE: dict[str, Callable[[int, int], str]] = {
    "eos": lambda _i, k: f"   zz-extra-{k} on",
    "nxos": lambda _i, k: f"  zz-extra-{k} on",
    "onyx": lambda i, k: f"   interface ethernet 1/{i} zz-extra-{k} on",
}


def cli_text(platform: Platform, blocks: list[list[str]], stamp: str) -> str:
    """Return the whole config with the header and end that the platform prints."""
    body = "\n".join("\n".join(b) for b in blocks)
    if platform == "eos":
        return f"! Command: show running-config\n! Time: {stamp}\nhostname s\n!\n{body}\n!\nend\n"
    if platform == "nxos":
        return (
            f"!Command: show running-config\n!Time: {stamp}\nversion 10.3(4a) Bios:version 05.45\nhostname s\n{body}\n"
        )
    mode = "cli default prefix-modes enable"
    return f"##\n## Generated at {stamp} +0000\n##\nno {mode}\n{body}\n{mode}\n"


def tree_case(platform: Platform, interfaces: int, rng: random.Random) -> Case:
    """Build a JSON config with one entry per interface."""
    golden: dict[str, dict[str, Any]] = {}
    for i in range(interfaces):
        if platform == "sonic":
            golden[f"Ethernet{8 * i}"] = {
                "admin_status": "up",
                "fec": "rs",
                "index": str(i),
                "mtu": "9216",
                "speed": "400000",
            }
        else:
            link = {"mtu": 9216, "speed": "400G", "fec": "rs"}
            golden[f"swp{i + 1}"] = {"link": link, "type": "swp", "description": f"port {i}"}
    running = json.loads(json.dumps(golden))
    every = [(name, key) for name, entry in golden.items() for key in entry if key != "link"]
    picked = rng.sample(every, max(1, int(len(every) * DRIFT_SHARE)))
    for name, key in picked:
        kind = rng.randrange(3)
        if kind == 0:
            running[name][key] = f"{running[name][key]}9"
        elif kind == 1:
            del running[name][key]
        else:
            running[name][f"zz-{key}"] = "on"
    order = list(running)
    rng.shuffle(order)
    shuffled = {name: running[name] for name in order}
    return Case(tree_text(platform, golden), tree_text(platform, shuffled), len(picked))


def tree_text(platform: Platform, interfaces: dict[str, Any]) -> str:
    """Return the JSON document as the platform prints it."""
    if platform == "sonic":
        return json.dumps({"DEVICE_METADATA": {"localhost": {"hostname": "s"}}, "PORT": interfaces}, indent=4)
    header = {"header": {"model": "MSN4700", "nvue-api-version": "nvue_v1", "rev-id": 1.0, "version": "5.9.1"}}
    return json.dumps([header, {"set": {"system": {"hostname": "s"}, "interface": interfaces}}], indent=2)


@dataclass
class Tally:
    """Seconds and reported entries of one method on one platform."""

    seconds: list[float] = field(default_factory=list)
    reported: int = 0
    changes: int = 0

    def add(self, method: Callable[[], int], changes: int) -> None:
        started = time.perf_counter()
        self.reported += method()
        self.seconds.append(time.perf_counter() - started)
        self.changes += changes


def ours(platform: Platform, case: Case) -> int:
    """Normalise both texts and compare them."""
    golden, running = normalise(platform, case.golden), normalise(platform, case.running)
    if not (golden.well_formed and running.well_formed):
        raise SystemExit(f"{platform}: {golden.problem or running.problem}")
    return len(drift(platform, golden.config, running.config))


def netutils_alone(platform: Platform, case: Case) -> int:
    """Count the lines netutils prints, headers of the lines included, as it prints them."""
    name = NETUTILS[platform]
    missing = diff_network_config(case.golden, case.running, name)
    extra = diff_network_config(case.running, case.golden, name)
    return len(missing.splitlines()) + len(extra.splitlines())


def plain_difflib(case: Case) -> int:
    """Count the added and removed lines of a unified diff of the raw texts."""
    lines = difflib.unified_diff(case.golden.splitlines(), case.running.splitlines(), lineterm="", n=0)
    return sum(1 for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", type=int, default=1000, help="configs over all platforms (default 1000)")
    parser.add_argument("--interfaces", type=int, default=1000, help="interfaces a config (default 1000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--difflib-every", type=int, default=10, help="run difflib on every Nth config: it is slow")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    tallies: dict[tuple[str, str], Tally] = {}
    started = time.perf_counter()
    for n in track(range(options.configs), description="configs", console=Console(stderr=True)):
        platform = PLATFORMS[n % len(PLATFORMS)]
        build = tree_case if platform in ("sonic", "cumulus") else cli_case
        case = build(platform, options.interfaces, rng)
        methods: dict[str, Callable[[], int]] = {"fabric-health": partial(ours, platform, case)}
        if platform in NETUTILS:
            methods["netutils"] = partial(netutils_alone, platform, case)
        if n // len(PLATFORMS) % options.difflib_every == 0:
            methods["difflib"] = partial(plain_difflib, case)
        for name, method in methods.items():
            tallies.setdefault((platform, name), Tally()).add(method, case.changes)
    tallies = dict(sorted(tallies.items(), key=lambda i: [str(p) for p in PLATFORMS].index(i[0][0])))
    show(options.configs, options.interfaces, tallies, time.perf_counter() - started)
    exact = all(t.reported == t.changes for (_, method), t in tallies.items() if method == "fabric-health")
    return 0 if exact else 1


def show(configs: int, interfaces: int, tallies: dict[tuple[str, str], Tally], wall_s: float) -> None:
    """Print the table."""
    table = Table(title=f"Drift: {configs} configs of {interfaces} interfaces, about 1 % of the lines changed")
    for name in ("platform", "method", "configs", "ms a config", "total s", "time against ours", "changed", "reported"):
        table.add_column(name, justify="left" if name in ("platform", "method") else "right")
    for (platform, method), t in tallies.items():
        own = tallies[platform, "fabric-health"]
        mean, base = sum(t.seconds) / len(t.seconds), sum(own.seconds) / len(own.seconds)
        table.add_row(
            platform,
            method,
            str(len(t.seconds)),
            f"{mean * 1000:.1f}",
            f"{sum(t.seconds):.1f}",
            f"{mean / base:.2f}x",
            str(t.changes),
            str(t.reported),
        )
    console = Console(width=120)
    console.print(table)
    total = sum(sum(t.seconds) for (_, m), t in tallies.items() if m == "fabric-health")
    console.print(f"fabric-health alone: {total:.1f} s; whole run with building and the alternatives: {wall_s:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
