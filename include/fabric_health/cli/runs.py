"""``fabric-health run`` and ``stage``: the chain without Airflow, whole or stage by stage."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fabric_health import answer as answers
from fabric_health.cli.terminal import EXIT_OF, Clock, Exit, finding_block, out, show
from fabric_health.connections import home
from fabric_health.datasets.tables import Answer
from fabric_health.errors import UsageError

if TYPE_CHECKING:
    from fabric_health.datasets.verdict_tables import Verdict

SHOWN = 40
STAGES = ("collect", "land", "judge", "isolate", "compare", "explain", "quality", "conclude", "publish")
ScopeOption = Annotated[str | None, typer.Option("--scope", help="units, as ranges: gpu-[001-004],leaf-1")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(run)
    app.command()(stage)


def run(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="a check (driver_firmware, collectives, ...) or `weekly`: all of them")],
    scope: ScopeOption = None,
) -> None:
    """Run a check, or the weekly chain, and print the answer. Exit code: 0 healthy, 1 findings, 2 could not judge."""
    from fabric_health import pipeline
    from fabric_health.checks import registry
    from fabric_health.rooms import default_site_file, open_rooms

    checks = [e.name for e in registry.ENTRIES] if what == "weekly" else [registry.entry(what).name]
    rooms = open_rooms(context.obj or default_site_file(), Clock().tell)
    done = pipeline.run_all(
        rooms,
        dag="weekly" if what == "weekly" else checks[0],
        scheduler_run_id=f"cli-{uuid.uuid4()}",
        checks=checks,
        scope=scope,
    )
    copy = save_report(rooms, done.page["prefix"])
    print_answer(rooms, done.ref)
    out.print(f"\npage      {copy}\nevidence  fabric-health evidence UNIT --run {done.ref.split('/')[-2]}")
    raise typer.Exit(EXIT_OF[Answer(done.conclusion["answer"])])


def save_report(rooms: Any, prefix: str) -> Path:
    """Copy a run's page from the store to the home directory, to be opened in a browser. Return its path."""
    run_name = prefix.rstrip("/").rsplit("/", 1)[1]
    target = home() / "reports" / run_name
    keys = rooms.store.list(prefix)
    for key, body in zip(keys, rooms.store.get_many(keys), strict=True):
        path = (target / key.removeprefix(prefix)).resolve()
        if not path.is_relative_to(target.resolve()):
            raise UsageError(f"object {key!r} would be written outside {target}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return target / "index.html"


def print_answer(rooms: Any, ref: str) -> Answer:
    """Print a concluded run's answer and the units to look at; return the answer."""
    from fabric_health import pipeline
    from fabric_health.datasets.tables import Finding, Run
    from fabric_health.history import load_part
    from fabric_health.landed import Landed

    document = pipeline.load_run(rooms, ref)
    record = load_part(rooms.store, Run, document.key, "run")[0]
    found = Landed(rooms.store, document).of(Finding)
    look, expected = answers.news(found), answers.acknowledged(found)
    out.print()
    show(f"{record.answer}  {record.headline}")
    _print_verdict(Landed(rooms.store, document).verdicts())
    for f in look[:SHOWN]:
        finding_block(f)
    if len(look) > SHOWN:
        show(f"and {len(look) - SHOWN} more; all are in the view current_findings")
    for f in expected[:SHOWN]:
        show(f"acknowledged  {f.unit}  {f.summary} [{f.acknowledged_by}]")
    show(f"coverage  {record.coverage_ratio:.1%} of (check, unit) pairs in scope judged")
    return Answer(record.answer)


def _print_verdict(rows: Sequence[Verdict]) -> None:
    word = answers.verdict_word(rows)
    whole = next((r for r in rows if r.subject_kind == "run"), None)
    reason = whole.reason if whole else "the run was not compared with earlier ones"
    if whole is None or word == answers.NO_VERDICT:
        show(f"verdict   none, which is no PASS: {reason}")
        return
    show(f"verdict   {word}: {reason}")
    for title, text in (("why", whole.explanation), ("to settle", whole.settle), ("compared", whole.compared_with)):
        if text:
            show(f"{title:9} {'with ' if title == 'compared' else ''}{text}")


def stage(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help=f"one of: {', '.join(STAGES)}")],
    ref: Annotated[str, typer.Option("--run", help="reference of the run: the key of its run.json in the store")],
    check: Annotated[str | None, typer.Option("--check", help="check, for collect, land and judge")] = None,
) -> None:
    """Repeat one stage of a run that exists; it writes the same objects again."""
    from fabric_health import pipeline
    from fabric_health.rooms import default_site_file, open_rooms

    if name not in STAGES:
        raise UsageError(f"no stage is called {name!r}; expected one of: {', '.join(STAGES)}")
    rooms = open_rooms(context.obj or default_site_file(), Clock().tell)
    if name in ("collect", "land", "judge"):
        if check is None:
            raise UsageError(f"stage {name} works on one check; give --check NAME")
        per_check = {"collect": pipeline.collect, "land": pipeline.land, "judge": pipeline.judge}
        result: Any = per_check[name](rooms, ref, check)
    else:
        whole = {
            "isolate": pipeline.isolate,
            "compare": pipeline.compare,
            "explain": pipeline.explain,
            "quality": pipeline.check_quality,
            "conclude": pipeline.conclude,
            "publish": pipeline.publish,
        }
        result = whole[name](rooms, ref)
    typer.echo(json.dumps(result, indent=1))
    raise typer.Exit(Exit.HEALTHY)
