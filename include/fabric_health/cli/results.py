"""``fabric-health tables``, ``sql``, ``report`` and ``evidence``: what runs have landed."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from fabric_health.cli.terminal import Clock, grid, out, show
from fabric_health.connections import ConnectionSource, connection
from fabric_health.errors import ConnectionSettingError, UsageError


class Format(StrEnum):
    """How query results are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(tables)
    app.command()(sql)
    app.command()(report)
    app.command()(evidence)


def _reader(connections: ConnectionSource = connection) -> Any:
    """Connect as the read-only analyst where that connection exists, else as the pipeline."""
    from fabric_health.datasets.store import ObjectStore
    from fabric_health.rooms import ANALYST_CONNECTION, STORE_CONNECTION

    try:
        return ObjectStore.connect(connections(ANALYST_CONNECTION))
    except ConnectionSettingError:
        return ObjectStore.connect(connections(STORE_CONNECTION))


def tables(name: Annotated[str | None, typer.Argument(help="table: show its columns")] = None) -> None:
    """List the result tables with their rows, or describe one."""
    from fabric_health.datasets import contracts, registry
    from fabric_health.datasets import sql as engine

    known = {t.TABLE: t for t in registry.all_tables()}
    if name is not None:
        if name not in known:
            raise UsageError(f"no table is called {name!r}; known: {', '.join(sorted(known))}")
        show(known[name].DESCRIPTION)
        columns = (*contracts.columns(known[name]), *contracts.COMMON)
        grid(
            ["column", "type", "unit", "null", "description"],
            [[c.name, c.type.__name__, c.unit, "yes" if c.nullable else "no", c.description] for c in columns],
        )
        return
    store = _reader()
    # Names come from our own contracts, not from a user.
    count = " union all ".join(f"select '{t}', count(*) from \"{t}\"" for t in sorted(known))  # noqa: S608
    rows = engine.query(store, count).to_pylist()
    grid(["table", "rows", "what"], [[a, str(b), known[a].DESCRIPTION] for a, b in (list(r.values()) for r in rows)])


def sql(
    query: Annotated[str, typer.Argument(help="SQL (DuckDB) over the tables and views; `-` reads it from stdin")],
    output: Annotated[Format, typer.Option("--format", help="table, csv or json (one object a line)")] = Format.TABLE,
    limit: Annotated[int, typer.Option(help="rows printed as a table")] = 100,
) -> None:
    """Query the result tables, read only. Views: see docs/tables.md."""
    import json

    from fabric_health.datasets import sql as engine

    result = engine.query(_reader(), sys.stdin.read() if query == "-" else query)
    if output is Format.JSON:
        for row in result.to_pylist():
            typer.echo(json.dumps(row, default=str))
    elif output is Format.CSV:
        import pyarrow.csv as pa_csv

        pa_csv.write_csv(result, sys.stdout.buffer)
    else:
        shown = [["" if v is None else str(v) for v in r.values()] for r in result.slice(0, limit).to_pylist()]
        grid(result.column_names, shown)
        if result.num_rows > limit:
            out.print(f"[dim]{limit} of {result.num_rows} rows; --limit or --format csv for all[/dim]")


def report(
    context: typer.Context,
    run: Annotated[str | None, typer.Option("--run", help="name of a run; default: the latest whole one")] = None,
) -> None:
    """Copy a run's page from the store and print where it is."""
    import json

    from fabric_health.cli.runs import save_report
    from fabric_health.datasets.store import ObjectMissing
    from fabric_health.rooms import default_site_file, open_rooms

    rooms = open_rooms(context.obj or default_site_file(), Clock().tell)
    site = rooms.site.name
    if run is None:
        try:
            latest = json.loads(rooms.store.get(f"reports/site={site}/latest.json"))["report"]
        except ObjectMissing:
            raise UsageError(f"site {site!r} has no report yet; make one with `fabric-health run weekly`") from None
        prefix = latest.removesuffix("index.html")
    else:
        keys = [k for k in rooms.store.list(f"reports/site={site}/") if k.endswith(f"/{run}/index.html")]
        if not keys:
            raise UsageError(f"site {site!r} has no report of a run {run!r}; `fabric-health sql` on `runs` lists them")
        prefix = keys[0].removesuffix("index.html")
    show(str(save_report(rooms, prefix)))


def evidence(
    unit: Annotated[str, typer.Argument(help="node or switch")],
    run: Annotated[str, typer.Option("--run", help="name of the run")],
    check: Annotated[str | None, typer.Option("--check", help="check; default: all that asked the unit")] = None,
    command: Annotated[str | None, typer.Option("--command", help="only this command's output")] = None,
) -> None:
    """Print the raw evidence of a unit as it was kept: command, exit code, output."""
    from fabric_health.datasets.evidence import find_evidence

    found = [e for e in find_evidence(_reader(), run, unit) if check in (None, e.check)]
    if not found:
        raise UsageError(f"run {run!r} kept no evidence of {unit!r}")
    for item in found:
        show(f"# {item.check} on {item.unit}: {item.status.value} {item.detail}")
        for r in item.results:
            if command not in (None, r.name):
                continue
            show(f"$ {' '.join(r.argv)}   [{r.status.value}, exit code {r.exit_code}]")
            for stream in (r.stdout, r.stderr):
                for line in stream.splitlines():
                    show(line)
