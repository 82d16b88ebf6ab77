"""Scripted maintenances through the real DAG ``post_maintenance`` on the embedded Airflow: is the verdict right?

    python bench/maintenances.py [--only driver-loss ...] [--home DIRECTORY]

Brings up the object store, the lab and Airflow in a home of its own, makes four healthy runs, accepts the last of them
as baseline, and then plants each maintenance, triggers the DAG as its form would, and heals the lab. Checks: the audits
of nodes and switches, and the lab's collectives on all nodes, per node and per rail (engine ``lab_fleet``: the fleet
model's numbers, docs/lab.md). Each run has noise of its own. Exit code 1 when one verdict, its units or its cause is
wrong, or a control was blamed. With ``--home`` everything stays there for a look at the pages.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

import fabric_health
from fabric_health import baselines, compared, pipeline
from fabric_health.airflow import embedded as airflow
from fabric_health.datasets import embedded as store_server
from fabric_health.datasets import reading
from fabric_health.datasets.reading import ConcludedRun
from fabric_health.datasets.run import RunKey
from fabric_health.datasets.verdict_tables import Attribution, Verdict
from fabric_health.history import load_part
from fabric_health.lab import lab
from fabric_health.pipeline import Rooms
from fabric_health.rooms import open_rooms

SITES = Path(fabric_health.__file__).parents[1] / "sites"
CHECKS = ["driver_firmware", "switch_config", "collectives"]
HISTORY = 4
DRIVER, FIRMWARE, MTU = "driver_version", "fw_version", "/PORT/<port>/mtu"
FOUR, OTHERS = ("gpu-001", "gpu-002", "gpu-003", "gpu-004"), ("gpu-005", "gpu-006", "gpu-007", "gpu-008")
NICS = tuple(f"mlx5_{i}" for i in range(8))


@dataclass(frozen=True)
class Maintenance:
    """What is done, as the form of the DAG says it, and what the verdict must be.

    ``units`` are those that must be named as slower, ``causes`` the changes of which one must come first, with the
    others said to be inseparable from it.
    """

    name: str
    touched: str
    kind: str
    faults: tuple[tuple[str, str, str | None], ...]
    outcomes: tuple[str, ...]
    units: frozenset[str] = frozenset()
    causes: frozenset[str] = frozenset()


def _on(kind: str, *units: str) -> tuple[tuple[str, str, str | None], ...]:
    return tuple((kind, unit, None) for unit in units)


MAINTENANCES = (
    Maintenance("nothing", "gpu-[001-004]", "other", (), ("PASS", "INCONCLUSIVE")),
    Maintenance("driver", "gpu-[001-004]", "driver", _on("driver-version", *FOUR), ("PASS",)),
    Maintenance(
        "driver-loss",
        "gpu-[001-004]",
        "driver",
        _on("driver-version", *FOUR) + _on("slow-node", *FOUR),
        ("REGRESSED",),
        frozenset(FOUR),
        frozenset({DRIVER}),
    ),
    Maintenance(
        "mtu-line",
        "leaf-2",
        "switch_config",
        _on("switch-mtu", *(f"leaf-2/Ethernet{n}" for n in range(0, 256, 8))),
        ("REGRESSED",),
        frozenset({"rail-2", "rail-3"}),
        frozenset({MTU}),
    ),
    Maintenance(
        "firmware+driver",
        "gpu-[005-008]",
        "firmware",
        _on("driver-version", *OTHERS)
        + _on("slow-node", *OTHERS)
        + _on("nic-firmware", *(f"{n}/{nic}" for n in OTHERS for nic in NICS)),
        ("REGRESSED",),
        frozenset(OTHERS),
        frozenset({DRIVER, FIRMWARE}),
    ),
)


@dataclass(frozen=True)
class Result:
    """What the run after a maintenance said."""

    state: str
    verdict: Verdict | None
    units: frozenset[str]
    causes: tuple[Attribution, ...]
    blamed_controls: tuple[str, ...]
    seconds: float

    def wrong(self, m: Maintenance) -> str:
        """Return what is wrong with it, empty when nothing is."""
        if self.state != "success" or self.verdict is None:
            return f"the DAG run ended as {self.state}"
        if self.verdict.outcome not in m.outcomes:
            return f"verdict {self.verdict.outcome}: {self.verdict.reason}"
        if self.units != m.units:
            return f"units {', '.join(sorted(self.units)) or 'none'}"
        if self.blamed_controls:
            return f"controls blamed: {', '.join(self.blamed_controls)}"
        first = self.causes[0].attribute if self.causes else None
        if (first in m.causes) != bool(m.causes) or (first and not m.causes):
            return f"first cause {first}"
        same = {c.attribute for c in self.causes if c == self.causes[0] or c.inseparable_from}
        return f"not said to be inseparable: {same}" if same != m.causes else ""


def main() -> int:
    """Run the maintenances and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=[m.name for m in MAINTENANCES], help="default: all")
    parser.add_argument("--home", type=Path, help="an empty directory that is kept; default: one that is deleted")
    options = parser.parse_args()
    wanted = [m for m in MAINTENANCES if not options.only or m.name in options.only]
    failed = 0
    with _running(options.home) as (rooms, server):
        lines = []
        for m in wanted:
            got = _maintain(rooms, server, m)
            wrong = got.wrong(m)
            failed += bool(wrong)
            lines.append(_line(m, got, wrong))
        print("\n| maintenance | verdict | slower | first cause | controls blamed | s | right |")
        print("|---|---|---|---|---|---:|---|")
        print("\n".join(lines), flush=True)
    return 1 if failed else 0


def _line(m: Maintenance, got: Result, wrong: str) -> str:
    cause = "-"
    if got.causes:
        first = got.causes[0]
        cause = f"`{first.attribute}` {first.before} -> {first.after}"
        cause += f"; inseparable from {first.inseparable_from}" if first.inseparable_from else ""
    word = got.verdict.outcome if got.verdict else got.state
    units = ", ".join(sorted(got.units)) or "-"
    blamed = ", ".join(got.blamed_controls) or "none"
    return f"| {m.name} | {word} | {units} | {cause} | {blamed} | {got.seconds:.0f} | {wrong or 'yes'} |"


def _maintain(rooms: Rooms, server: airflow.Embedded, m: Maintenance) -> Result:
    """Plant a maintenance, run the DAG, heal the lab, and read what the run left in the tables."""
    print(f"== {m.name}: {m.touched}", flush=True)
    home = Path(os.environ["FABRIC_HEALTH_HOME"])
    for fault in m.faults:
        lab.add_fault(home, *fault)
    began = time.monotonic()
    try:
        form = {"site": rooms.site.name, "touched": m.touched, "kind": m.kind, "ticket": m.name, "checks": CHECKS}
        state = airflow.run_dag(server, _tell, "post_maintenance", form)
    finally:
        lab.heal(home)
    seconds = time.monotonic() - began
    latest: ConcludedRun | None = next(reading.concluded(rooms.store, rooms.site.name), None)
    if latest is None or latest.row.ticket != m.name:
        return Result(state, None, frozenset(), (), (), seconds)
    key = RunKey(rooms.site.name, latest.run, latest.started_at, rooms.site.origin)
    verdicts = load_part(rooms.store, Verdict, key, compared.PART)
    causes = sorted(load_part(rooms.store, Attribution, key, compared.PART), key=lambda a: a.rank)
    slower = [v for v in verdicts if v.outcome == "REGRESSED" and v.subject_kind in compared.SINGLE]
    whole = next((v for v in verdicts if v.subject_kind == compared.RUN), None)
    for text in (whole.reason, whole.explanation) if whole else ():
        print(f"   {text or '-'}", flush=True)
    return Result(
        state,
        whole,
        frozenset(v.subject for v in slower),
        tuple(causes),
        tuple(sorted({v.subject for v in verdicts if v.role == "control" and v.outcome == "REGRESSED"})),
        seconds,
    )


@contextmanager
def _running(home: Path | None) -> Iterator[tuple[Rooms, airflow.Embedded]]:
    """Bring up store, lab and Airflow, with a history of healthy runs, and stop them again."""
    root = (home or Path(tempfile.mkdtemp(prefix="maintenances-"))).resolve()
    root.mkdir(parents=True, exist_ok=True)
    site_path = _site(root)
    os.environ["FABRIC_HEALTH_HOME"] = str(root)
    os.environ["FABRIC_HEALTH_SITE"] = str(site_path)
    os.environ["FABRIC_HEALTH_SITE_FILES"] = f"lab={site_path}"
    try:
        store_server.start(root)
        lab.up(site_path, root)
        rooms = open_rooms(site_path, lambda message: None)
        for number in range(HISTORY):
            print(f"== healthy run {number + 1} of {HISTORY}", flush=True)
            made = pipeline.run_all(rooms, dag="weekly", scheduler_run_id=f"cli-{uuid.uuid4()}", checks=CHECKS)
        run = pipeline.load_run(rooms, made.ref).key
        baselines.accept(
            rooms.store, rooms.site.name, run.run,
            by="bench", reason="healthy", now=datetime.now(UTC), origin=rooms.site.origin,
        )  # fmt: skip
        yield rooms, airflow.start(_tell)
    finally:
        airflow.settings().background.stop()
        lab.down(root)
        store_server.stop(root)
        if home is None:
            shutil.rmtree(root, ignore_errors=True)


def _site(root: Path) -> Path:
    """Copy the lab's site with the fleet's collectives alone: the other benchmarks measure this machine."""
    folder = root / "site"
    shutil.copytree(SITES / "golden", folder / "golden", dirs_exist_ok=True)
    site = yaml.safe_load((SITES / "lab.yaml").read_text())
    site["checks"] = {"collectives": {**site["checks"]["collectives"], "engines": ["lab_fleet"]}}
    del site["checks"]["collectives"]["gloo"]
    (folder / "lab.yaml").write_text(yaml.safe_dump(site, sort_keys=False))
    return folder / "lab.yaml"


def _tell(message: str) -> None:
    print(f"   {message}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
