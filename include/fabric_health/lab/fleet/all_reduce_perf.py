"""Stand-in for the programs of nccl-tests in the lab.

``python -m fabric_health.lab.fleet.all_reduce_perf all_reduce --hosts gpu-001,gpu-002 -b 8M -e 8G -f 2``

Takes nccl-tests' options after the collective (its name or its program's) and ``--hosts a,b`` (or
``FABRIC_HEALTH_HOSTS``) for what mpirun would be told, and prints in nccl-tests' format what the fleet model says these
hosts would measure with the faults that the lab has now. ``--run`` and ``--launch`` name the run and the launch and
thereby seed the noise; without them every start differs. ``--home`` is the lab's home (default
``FABRIC_HEALTH_HOME``); ``--site`` plays a site file without a lab.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from fabric_health import connections
from fabric_health.errors import FabricHealthError, LabError
from fabric_health.lab.fleet import document, text
from fabric_health.lab.fleet.model import Fleet, NoPathError
from fabric_health.lab.fleet.options import ExitError, Options, parse
from fabric_health.lab.fleet.session import Line, Session
from fabric_health.lab.place import Place, ServerRecord
from fabric_health.lab.state import LabState, load
from fabric_health.site import Site, expand, load_site

Out = Callable[[str], object]


def run(argv: Sequence[str], environment: Mapping[str, str], out: Out, err: Out) -> int:
    """Play one launch: write to ``out`` and ``err`` what the tool prints, return its exit code."""
    began = datetime.now(UTC)
    try:
        options = parse(argv)
        site, state = _lab(options, environment)
        hosts = _hosts(options, environment)
        fleet = Fleet.of_site(site, state, hosts)
        _start(fleet, hosts)
        asked = [environment.get(name, "") for name in ("NCCL_TESTS_SPLIT", "NCCL_ALGO", "NCCL_TESTS_DEVICE")]
        session = Session.plan(options, fleet, hosts, *asked)
        return _measure(session, argv, environment, began, out)
    except ExitError as end:
        out(end.stdout)
        err(end.stderr)
        return end.code
    except NoPathError as error:
        host = str(error).partition(":")[0]
        failure = f"Test NCCL failure common.cu:1015 'unhandled system error: {error}'"
        out(f"{host}: {failure} .. {host} pid 4000: Test failure common.cu:891\n")
        return 3
    except FabricHealthError as error:
        err(f"{error}\n")
        return 1


def _measure(session: Session, argv: Sequence[str], environment: Mapping[str, str], began: datetime, out: Out) -> int:
    options = session.options

    def say(line: str) -> None:
        out(line + "\n")

    path = None
    if options.json:
        path = document.reserve(options.json)
        say(f"# Writing JSON output to {path}" if path else f"# skipping json output; {options.json} not accessible")
    logs = environment.get("NCCL_DEBUG", "").upper() in ("INFO", "TRACE")
    for line in text.header(session):
        say(line)
    for line in text.log_of_start(session) if logs else ():
        say(line)
    run_name = options.own.get("run") or f"{began:%Y-%m-%dT%H}"
    launch = options.own.get("launch") or secrets.token_hex(8)
    lines: list[Line] = []
    for line in text.table_header(session):
        say(line)
    for result in session.lines(run_name, launch):
        for entry in text.log_of_size(session, result.size) if logs else ():
            say(entry)
        say(text.row(session, result, datetime.now(UTC)))
        lines.append(result)
    if not lines:
        raise ExitError(1, stderr="no size is large enough for these ranks\n")
    halves = [h for r in lines for h in (r.out_of_place, r.in_place)]
    average = sum(h.busbw_gbps for h in halves) / len(halves)
    minimum = _minimum(environment)
    for line in text.footer(session, average, minimum):
        say(line)
    if path:
        ended = datetime.now(UTC)
        document.write(path, document.document(session, lines, average, minimum, argv, environment, began, ended))
    return 1 if minimum is not None and average < 0.9 * minimum else 0


def _lab(options: Options, environment: Mapping[str, str]) -> tuple[Site, LabState | None]:
    """Return the site that the lab plays and its faults. Raises LabError when there is no lab and no ``--site``."""
    named = options.own.get("home") or environment.get("FABRIC_HEALTH_HOME")
    place = Place(Path(named).resolve() if named else connections.home())
    site = options.own.get("site")
    record = ServerRecord.load(place.server)
    try:
        state = load(place.state)
    except FileNotFoundError:
        state = None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(f"{place.state}: {error}; expected the lab's state") from None
    if site is not None:
        return load_site(site), state
    if record is None or state is None:
        raise LabError(f"no lab in {place.home}: start one with fabric-health lab up, or name a site with --site")
    return load_site(record.site_path), state


def _hosts(options: Options, environment: Mapping[str, str]) -> list[str]:
    named = options.own.get("hosts") or environment.get("FABRIC_HEALTH_HOSTS", "")
    hosts = list(dict.fromkeys(expand(named))) if named.strip() else []
    if not hosts:
        raise ExitError(2, stderr="no hosts: give --hosts gpu-001,gpu-002 or set FABRIC_HEALTH_HOSTS\n")
    return hosts


def _start(fleet: Fleet, hosts: Sequence[str]) -> None:
    """Raise ExitError as mpirun ends when a host does not take its processes."""
    for host in hosts:
        if host in fleet.costs.silent:
            raise ExitError(
                255,
                stderr=f"ssh: connect to host {host} port 22: {fleet.costs.silent[host]}\n"
                "ORTE was unable to reliably start one or more daemons.\n",
            )


def _minimum(environment: Mapping[str, str]) -> float | None:
    try:
        return float(environment["NCCL_TESTS_MIN_BW"])
    except (KeyError, ValueError):
        return None


def main() -> int:
    """Run with the arguments and the environment of this process."""
    try:
        return run(sys.argv[1:], os.environ, sys.stdout.write, sys.stderr.write)
    finally:
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
