"""``make run``: the lab, an accepted healthy run, the planted faults, and the weekly DAG on a real Airflow.

``python -m fabric_health.airflow.first_run run|stop|status``. Exit code of ``run``: 0 when the pipeline completed,
whatever it found; 2 when it did not.
"""

from __future__ import annotations

import json
import sys
import traceback
import uuid

from fabric_health import pipeline
from fabric_health.airflow import embedded as airflow
from fabric_health.checks.registry import ENTRIES, check
from fabric_health.cli.runs import print_answer, save_report
from fabric_health.cli.terminal import Clock, Exit, fail, out, show
from fabric_health.connections import home
from fabric_health.datasets import embedded as store_server
from fabric_health.datasets.reading import concluded
from fabric_health.errors import FabricHealthError, UsageError
from fabric_health.jobs.environments import HERE, ToolEnvironmentError, ensure
from fabric_health.jobs.settings import settings as job_settings
from fabric_health.lab import lab
from fabric_health.lab.faults import PLANTED
from fabric_health.pipeline import Rooms
from fabric_health.rooms import default_site_file, open_rooms
from fabric_health.site import Site

# What the run before leaves to the DAG: minutes each, and none of the planted faults concerns them.
ONCE = ("model_eval", "elastic_training")


def run() -> int:
    """Bring everything up, run the weekly DAG once, and print the answer and the addresses."""
    clock = Clock()
    clock.tell("[1/5] the lab: object store, nodes and switches")
    store_server.start(home())
    was_up = lab.status(home()) is not None
    info = lab.up(default_site_file(), home())
    clock.tell(f"{info.units} units answer over SSH")
    if info.no_fabric:
        clock.tell(f"the InfiniBand fabric will not be judged: {info.no_fabric}")
    rooms = open_rooms(default_site_file(), clock.tell)
    rooms.store.ensure_bucket()
    clock.tell("[2/5] environments of the tools that jobs run, once for each version")
    _make_tools(clock, rooms.site)
    if next(concluded(rooms.store, rooms.site.name), None) is None:
        clock.tell("[3/5] a first run while the lab is healthy, so that there is a before")
        lab.heal(home())
        checks = [e.name for e in ENTRIES if e.name not in ONCE]
        pipeline.run_all(rooms, dag="weekly", scheduler_run_id=f"cli-{uuid.uuid4()}", checks=checks, scope=None)
        _plant(clock)
    elif was_up:
        clock.tell("[3/5] the lab was up: its faults stay as they are (`fabric-health lab status`)")
    else:
        clock.tell("[3/5] earlier runs are there to compare with")
        _plant(clock)
    clock.tell("[4/5] Airflow")
    server = airflow.start(clock.tell)
    clock.tell(f"[5/5] the DAG {airflow.DAG}")
    state = airflow.run_weekly(server, clock.tell)
    return _finish(rooms, server, state)


def _make_tools(clock: Clock, site: Site) -> None:
    """Make the environments that benchmarks need, where their progress is seen. Jobs would make them, too."""
    chosen = job_settings(site)
    if chosen.backend != "local":
        return
    folder = (site.path.parent / chosen.tools).resolve()
    for tool in tools_of(site):
        try:
            ensure(tool, folder, home(), clock.tell)
        except ToolEnvironmentError as error:
            clock.tell(f"{error}; what needs it will not be judged")


def tools_of(site: Site) -> list[str]:
    """Return the tools that the jobs of the site's benchmarks run in, in the order of the benchmarks."""
    names: dict[str, None] = {}
    for entry in ENTRIES:
        plan = check(entry.name).launches if entry.name in site.checks else None
        for launch in plan(site, site.nodes, "tools") if plan else ():
            names.setdefault(launch.spec.tool)
    return [n for n in names if n not in HERE]


def _plant(clock: Clock) -> None:
    """Plant the documented faults: a lab that has just come up has none."""
    for kind, unit, value in PLANTED:
        lab.add_fault(home(), kind, unit, value)
        clock.tell(f"planted {kind} on {unit}" + (f" = {value}" if value else ""))


def _finish(rooms: Rooms, server: airflow.Embedded, state: str) -> int:
    if state != "success":
        fail(f"the DAG run ended as {state}; see {server.url}/dags/{airflow.DAG}")
        _addresses(server, None)
        return Exit.NOT_JUDGED
    latest = json.loads(rooms.store.get(f"reports/site={rooms.site.name}/latest.json"))["report"]
    prefix = latest.removesuffix("index.html")
    copy = save_report(rooms, prefix)
    print_answer(rooms, prefix.replace("reports/", "runs/", 1) + "run.json")
    _addresses(server, str(copy))
    return Exit.HEALTHY


def _addresses(server: airflow.Embedded, page: str | None) -> None:
    out.print()
    if page:
        show(f"page      {page}")
        show(f"          {server.url}/fabric-health/  (the same, behind Airflow's login)")
    show(f"Airflow   {server.url}  user {airflow.USER}, password {server.password}")
    show("data      fabric-health tables; fabric-health sql 'select * from current_findings'")
    show("next      fabric-health lab fault; fabric-health lab heal; make run again; make stop")


def stop() -> int:
    """Stop Airflow, the lab and the object store; results stay."""
    stopped = []
    if airflow.settings().background.stop():
        stopped.append("Airflow")
    if lab.down(home()):
        stopped.append("lab")
    if store_server.stop(home()):
        stopped.append("object store")
    show(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")
    return Exit.HEALTHY


def status() -> int:
    """Print what runs."""
    server, store, info = airflow.settings(), store_server.status(home()), lab.status(home())
    show(f"Airflow: {server.url if server.background.running() else 'not running'}")
    show(f"object store: {store.endpoint if store else 'not running'}")
    show(f"lab: {info.units} units" if info else "lab: not running")
    return Exit.HEALTHY


def main(argv: list[str]) -> int:
    """Run one of the commands; print a fault without a traceback."""
    commands = {"run": run, "stop": stop, "status": status}
    try:
        if len(argv) != 1 or argv[0] not in commands:
            raise UsageError(f"expected one of: {', '.join(commands)}")
        return int(commands[argv[0]]())
    except UsageError as error:
        fail(str(error))
        return Exit.USAGE
    except FabricHealthError as error:
        fail(str(error))
        return Exit.NOT_JUDGED
    except Exception:
        # A mistake of ours, with all that tells where; Python's own exit code for it would say "findings".
        traceback.print_exc()
        fail("this is a mistake in fabric-health: please report it with the lines above; `make stop` stops what runs")
        return Exit.NOT_JUDGED
    except KeyboardInterrupt:
        fail("interrupted; `make stop` stops what runs")
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
