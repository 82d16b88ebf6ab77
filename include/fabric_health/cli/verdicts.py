"""``fabric-health verdict``, ``baseline`` and ``maintenance``: did a change hurt, against what, and how sure are we."""

from __future__ import annotations

import getpass
import json
import re
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fabric_health.checks.registry import ENTRIES
from fabric_health.cli.runs import print_answer, save_report
from fabric_health.cli.terminal import Clock, Exit, finding_block, grid, out, show
from fabric_health.errors import UsageError
from fabric_health.verdict.comparability import label

if TYPE_CHECKING:
    from fabric_health.comparing import Comparison
    from fabric_health.datasets.verdict_tables import Verdict
    from fabric_health.pipeline import Rooms

verdict_app = typer.Typer(help="Compare runs: PASS, REGRESSED, IMPROVED, INCONCLUSIVE or NOT_COMPARABLE, and why.")
baseline_app = typer.Typer(help="Runs that were accepted as what is normal.", no_args_is_help=True)
SHOWN = 30
EXIT_OF = {
    "PASS": Exit.HEALTHY,
    "IMPROVED": Exit.HEALTHY,
    "REGRESSED": Exit.FINDINGS,
    "INCONCLUSIVE": Exit.NOT_JUDGED,
    "NOT_COMPARABLE": Exit.NOT_JUDGED,
}
TouchedOption = Annotated[
    str | None, typer.Option("--touched", help="units the change touched, as ranges; the others are controls")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(verdict_app, name="verdict")
    app.add_typer(baseline_app, name="baseline")
    app.command()(maintenance)


def _rooms(context: typer.Context) -> Rooms:
    from fabric_health.rooms import default_site_file, open_rooms

    return open_rooms(context.obj or default_site_file(), Clock().tell)


@verdict_app.callback(invoke_without_command=True)
def verdict(
    context: typer.Context,
    before: Annotated[str | None, typer.Option("--before", help="run, or name of a pinned baseline")] = None,
    after: Annotated[
        str | None, typer.Option("--after", help="run to judge; default: the latest that measured")
    ] = None,
    touched: TouchedOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a judgement")] = False,
) -> None:
    """Compare two runs that were made. Exit code: 0 PASS or IMPROVED, 1 REGRESSED, 2 neither could be said."""
    if context.invoked_subcommand is not None:
        return
    from fabric_health import baselines, comparing
    from fabric_health.datasets.run import RunKey

    rooms = _rooms(context)
    site = rooms.site.name
    now = baselines.find_run(rooms.store, site, after) if after else _latest(rooms)
    reference = baselines.reference(rooms.store, site, checks=_measured(now), before=now.started_at, baseline=before)
    change = None
    if touched:
        from fabric_health.maintenance import declare, resolve

        change = resolve(declare({"touched": touched}), rooms.site)
    key = RunKey(site, now.run, now.started_at, rooms.site.origin)
    found = comparing.between(rooms.store, rooms.site, key, reference, change)
    print_comparison(found, now.run, as_json)
    raise typer.Exit(EXIT_OF[found.whole.outcome.value])


def _latest(rooms: Rooms) -> Any:
    """Return the latest run that measured: one that audited only has no verdict, and is nothing to compare with."""
    from fabric_health.datasets import reading

    for held in reading.concluded(rooms.store, rooms.site.name, max_weeks=10_000):
        if _measured(held):
            return held
    raise UsageError(
        f"site {rooms.site.name!r} has no run yet that measured anything; make one with `fabric-health run weekly`"
    )


def _measured(held: Any) -> list[str]:
    """Return the benchmarks of a concluded run."""
    measuring = {e.name for e in ENTRIES if e.is_benchmark}
    return [name for name in held.row.checks.split(",") if name in measuring]


def print_comparison(found: Comparison, run: str, as_json: bool = False) -> None:
    """Print a comparison: the verdict and what explains it, then what moved, then the rest."""
    from dataclasses import asdict

    rows = found.rows()
    if as_json:
        for r in rows:
            typer.echo(json.dumps(asdict(r), default=str))
        return
    out.print()
    show(f"{found.whole.outcome}  {found.whole.reason}")
    if found.explanation:
        show(f"why        {found.explanation}")
    if found.whole.settle:
        show(f"to settle  {found.whole.settle}")
    show(f"compared   {run} with {found.why}")
    _print_judgements(rows[1:])


def _print_judgements(rows: Sequence[Verdict]) -> None:
    """Print judgements by metric, worst first; of units that passed only how many, where there is other news."""
    order = {"REGRESSED": 0, "NOT_COMPARABLE": 1, "IMPROVED": 2, "INCONCLUSIVE": 3, "PASS": 4}
    told = [r for r in rows if r.outcome != "PASS" or r.subject_kind == "set"] or list(rows)
    told.sort(key=lambda r: (order[r.outcome], r.subject_kind != "set", -(r.loss or 0), r.subject))
    kinds = {r.comparability: r.subject_kind for r in rows if r.subject_kind not in ("set", "fleet")}
    metrics: dict[tuple[str, str], list[list[str]]] = {}
    for r in told[:SHOWN]:
        kind = kinds.get(r.comparability, r.subject_kind)
        metrics.setdefault((label(r.metric, r.comparability), kind), []).append(_line(r))
    for (metric, kind), lines in metrics.items():
        out.print()
        show(f"{metric} by {kind}")
        grid(["verdict", "unit", "before -> now", "loss (interval)", "shows from"], lines)
    if told:
        out.print()
    if len(told) < len(rows):
        show(f"{len(rows) - len(told)} more PASS; --json prints all")
    if len(told) > SHOWN:
        show(f"{len(told) - SHOWN} more are not shown; --json prints all")


def _line(r: Verdict) -> list[str]:
    bounds = ["?" if b is None else f"{b * 100:.1f}" for b in (r.loss_low, r.loss_high)]
    interval = f" ({bounds[0]} to {bounds[1]})" if bounds != ["?", "?"] else ""
    values = ["?" if v is None else f"{v:.4g}" for v in (r.value_before, r.value_after)]
    return [
        r.outcome,
        r.subject,
        "" if values == ["?", "?"] else f"{' -> '.join(values)} {r.unit_of_measure or ''}",
        "" if r.loss is None else f"{r.loss:+.1%}{interval}",
        "" if r.detectable_loss is None else f"{r.detectable_loss:.1%}",
    ]


@verdict_app.command()
def explain(
    context: typer.Context,
    finding: Annotated[str, typer.Argument(help="id of a finding (16 hex digits), or a unit")],
    run: Annotated[str | None, typer.Option("--run", help="run; default: the latest one that has it")] = None,
) -> None:
    """Show a finding whole: what was measured, which changes fit it, and what speaks against them."""
    from fabric_health.datasets import sql

    rooms = _rooms(context)
    where = "site = ? AND (finding = ? OR unit = ?)" + (" AND run = ?" if run else "")
    values = [rooms.site.name, finding, finding, *([run] if run else [])]
    with sql.connect(rooms.store) as connection:
        # The condition is ours; what the user gave are values.
        found = sql.records(
            connection,
            f"SELECT * FROM findings SEMI JOIN concluded_runs USING (site, run) WHERE {where} "  # noqa: S608
            "ORDER BY produced_at DESC, severity, rule LIMIT 50",
            values,
        )
        if not found:
            raise UsageError(f"no finding {finding!r} in a concluded run; `fabric-health sql` on `findings` lists them")
        latest = [f for f in found if f["run"] == found[0]["run"]]
        run_of = [rooms.site.name, latest[0]["run"]]
        verdicts = sql.records(
            connection,
            "SELECT * FROM verdicts WHERE site = ? AND run = ? AND subject = ? ORDER BY outcome, metric",
            [*run_of, latest[0]["unit"]],
        )
        causes = sql.records(
            connection,
            "SELECT rank, summary, inseparable_from FROM attributions WHERE site = ? AND run = ? ORDER BY rank",
            run_of,
        )
    _print_explanation(latest, verdicts, causes)


def _print_explanation(
    found: list[dict[str, Any]], verdicts: list[dict[str, Any]], causes: list[dict[str, Any]]
) -> None:
    from fabric_health.datasets.contracts import columns
    from fabric_health.datasets.tables import Finding

    names = [c.name for c in columns(Finding)]
    show(f"run {found[0]['run']}")
    for raw in found:
        f = Finding(**{n: raw[n] for n in names})
        finding_block(f)
        show(
            f"          id {f.finding}, rule {f.rule}" + (f", explained by {f.explained_by}" if f.explained_by else "")
        )
        if f.source:
            show(f"          source: {f.source}")
    for v in verdicts:
        out.print()
        show(f"{v['outcome']} by {v['layer'] or 'comparability'}: {v['reason']}")
        if v["settle"]:
            show(f"to settle: {v['settle']}")
    for c in causes:
        out.print()
        show(f"{c['rank']}. {c['summary']}")
        if c["inseparable_from"]:
            show(f"   inseparable from {c['inseparable_from']}")


@verdict_app.command()
def plan(
    metric: Annotated[str, typer.Option("--metric", help="busbw_gbps, mib_per_s, ...")] = "busbw_gbps",
    loss: Annotated[str, typer.Option("--loss", help="loss to be seen, e.g. 5% or 0.05")] = "5%",
    noise: Annotated[str, typer.Option("--noise", help="spread of a launch, e.g. 2%")] = "2%",
    run_noise: Annotated[str, typer.Option("--run-noise", help="spread between runs of a unit beside its peers")] = "0",
    units: Annotated[int, typer.Option("--units", min=1, help="units that were touched")] = 1,
    controls: Annotated[int, typer.Option("--controls", min=0, help="units that were not")] = 0,
    launches: Annotated[int, typer.Option("--launches", min=1, help="launches before and after")] = 3,
    runs: Annotated[int, typer.Option("--runs", min=1, help="earlier runs")] = 1,
    judged: Annotated[
        int, typer.Option("--judged", min=1, help="units judged alone: each gets its share of the error")
    ] = 1,
    power: Annotated[float, typer.Option("--power", help="probability to see it")] = 0.8,
) -> None:
    """Say how many launches or units it takes to see a loss, and what the present plan would miss."""
    from fabric_health.verdict import power as powers
    from fabric_health.verdict.metrics import JUDGED

    if metric not in JUDGED:
        raise UsageError(f"no verdict is given on {metric!r}; known: {', '.join(JUDGED)}")
    design = powers.Design(
        units=units,
        controls=controls,
        launches_before=launches,
        launches_after=launches,
        runs_before=runs,
        judged=judged,
    )
    try:
        told = powers.plan(
            JUDGED[metric],
            share(loss, "--loss"),
            powers.Noise(share(noise, "--noise"), share(run_noise, "--run-noise")),
            design,
            power,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    show(told.sentence)


def share(text: str, where: str) -> float:
    """Return a share written as ``5%`` or ``0.05``. Raises UsageError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", text)
    value = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= value < 1:
        raise UsageError(f"{where} {text!r}: expected a share such as 5% or 0.05")
    return value


@baseline_app.command("list")
def list_baselines(context: typer.Context) -> None:
    """List acceptances, newest first."""
    from fabric_health import baselines

    rooms = _rooms(context)
    found = baselines.accepted(rooms.store, rooms.site.name)
    if not found:
        show("none accepted; runs are compared with the latest earlier one. `fabric-health baseline accept RUN`")
    else:
        grid(
            ["accepted", "run", "by", "pinned as", "new level", "why"],
            [
                [
                    f"{a.row.accepted_at:%Y-%m-%d %H:%M}",
                    a.run,
                    a.row.accepted_by,
                    a.row.pinned_as or "",
                    "yes" if a.row.resets_history else "",
                    a.row.reason,
                ]
                for a in found
            ],
        )


@baseline_app.command()
def accept(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="name of a concluded run, or `latest`: of those that measured")],
    reason: Annotated[str, typer.Option("--reason", help="why it is normal")],
    by: Annotated[str | None, typer.Option("--by", help="who accepts it; default: the user of this machine")] = None,
    name: Annotated[str | None, typer.Option("--as", help="pin it under a name, e.g. driver-580")] = None,
    new_level: Annotated[
        bool, typer.Option("--new-level", help="what changed is here to stay: earlier runs are no history any more")
    ] = False,
) -> None:
    """Accept a run as what later runs are compared with; who, when and why are kept."""
    from fabric_health import baselines

    rooms = _rooms(context)
    chosen = _latest(rooms).run if run == "latest" else run
    row = baselines.accept(
        rooms.store,
        rooms.site.name,
        chosen,
        by=by or getpass.getuser(),
        reason=reason,
        now=datetime.now(UTC),
        pinned_as=name,
        resets_history=new_level,
        origin=rooms.site.origin,
    )
    show(f"{chosen} is the baseline from now on; accepted by {row.accepted_by}: {row.reason}")


def maintenance(
    context: typer.Context,
    touched: Annotated[str, typer.Argument(help="units touched, as ranges: gpu-[001-004],leaf-1")],
    kind: Annotated[
        str, typer.Option("--kind", help="driver, firmware, switch_config, cabling, hardware, ...")
    ] = "other",
    ticket: Annotated[str | None, typer.Option("--ticket", help="change ticket")] = None,
    checks: Annotated[str | None, typer.Option("--checks", help="checks, comma separated; default: all")] = None,
    launches: Annotated[int | None, typer.Option("--launches", help="launches of a benchmark")] = None,
    baseline: Annotated[str | None, typer.Option("--baseline", help="run or pinned name to compare with")] = None,
    controls: Annotated[str | None, typer.Option("--controls", help="control units; default: chosen")] = None,
) -> None:
    """Run audits and benchmarks after work on units, and judge the change. Exit code as for `verdict`."""
    from fabric_health import baselines, pipeline
    from fabric_health.landed import Landed
    from fabric_health.maintenance import checks_of, declare, resolve

    rooms = _rooms(context)
    form = {
        "touched": touched,
        "kind": kind,
        "ticket": ticket,
        "checks": [c.strip() for c in checks.split(",")] if checks else None,
        "launches": launches,
        "baseline": baseline,
        "controls": controls,
    }
    declaration = declare(form)
    wanted, change = checks_of(declaration), resolve(declaration, rooms.site)
    if change.baseline is not None:
        rooms.store.ensure_bucket()
        baselines.named(rooms.store, rooms.site.name, change.baseline, datetime.now(UTC))
    done = pipeline.run_all(
        rooms, dag="post_maintenance", scheduler_run_id=f"cli-{uuid.uuid4()}", checks=wanted, change=change
    )
    copy = save_report(rooms, done.page["prefix"])
    print_answer(rooms, done.ref)
    out.print(f"\npage      {copy}")
    told = Landed(rooms.store, pipeline.load_run(rooms, done.ref)).verdict()
    raise typer.Exit(EXIT_OF[told.outcome] if told else Exit.NOT_JUDGED)
