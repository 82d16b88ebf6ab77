"""``fabric-health lab``: the embedded cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fabric_health.cli.terminal import Clock, grid, show
from fabric_health.connections import home
from fabric_health.lab.faults import CATALOGUE, PLANTED

app = typer.Typer(
    help="The embedded lab: a small GPU cluster on loopback, reached over real SSH.", no_args_is_help=True
)


@app.command()
def up(
    context: typer.Context,
    planted: Annotated[bool, typer.Option("--planted", help="plant the three documented faults")] = False,
) -> None:
    """Start the object store and the lab; both go on in the background. Started already, they are left alone."""
    from fabric_health.datasets import embedded
    from fabric_health.lab import lab
    from fabric_health.rooms import default_site_file

    clock = Clock()
    clock.tell("starting the object store")
    store = embedded.start(home())
    clock.tell(f"object store at {store.endpoint}; starting the lab's units")
    info = lab.up(context.obj or default_site_file(), home())
    clock.tell(f"{info.units} units answer over SSH on port {info.port}")
    if info.no_fabric:
        clock.tell(f"without its InfiniBand fabric: {info.no_fabric}")
    if planted:
        plant()


@app.command()
def down() -> None:
    """Stop the lab and the object store. Results stay on disk and are there again after `up`."""
    from fabric_health.datasets import embedded
    from fabric_health.lab import lab

    stopped = [name for name, did in (("lab", lab.down(home())), ("object store", embedded.stop(home()))) if did]
    show(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


@app.command()
def status() -> None:
    """Show what runs and which faults are active."""
    from fabric_health.datasets import embedded
    from fabric_health.lab import lab

    store, info = embedded.status(home()), lab.status(home())
    show(f"object store: {store.endpoint if store else 'not running'}")
    show(f"lab: site {info.site_name}, {info.units} units, port {info.port}" if info else "lab: not running")
    if info and info.faults:
        grid(
            ["fault", "unit", "value", "since (UTC)"],
            [[f.kind, f.unit, f.value or "", f.since.strftime("%Y-%m-%d %H:%M:%S")] for f in info.faults],
        )
    elif info:
        show("no fault is active")


@app.command()
def fault(
    kind: Annotated[str | None, typer.Argument(help="kind of fault; none given: list the kinds")] = None,
    unit: Annotated[str | None, typer.Argument(help="unit, e.g. gpu-007/mlx5_3 or leaf-2/Ethernet32")] = None,
    value: Annotated[str | None, typer.Argument(help="value, where the kind takes one")] = None,
) -> None:
    """Give a unit of the lab a fault; it takes effect at once."""
    from fabric_health.lab import infiniband, lab

    if kind is None or unit is None:
        grid(
            ["fault", "on a", "value (default)", "what it does"],
            [
                [k.name, k.unit_kind, f"{k.value_doc} ({k.default})" if k.default else k.value_doc, k.doc]
                for k in CATALOGUE.values()
            ]
            + [[name, "fabric", "", doc] for name, doc in infiniband.KINDS.items()],
        )
        return
    added = lab.add_fault(home(), kind, unit, value)
    show(f"{added.kind} on {added.unit}" + (f" = {added.value}" if added.value else ""))


@app.command()
def heal(
    unit: Annotated[str | None, typer.Argument(help="unit; none given: all units")] = None,
    kind: Annotated[str | None, typer.Argument(help="kind of fault; none given: all kinds")] = None,
) -> None:
    """Undo faults."""
    from fabric_health.lab import lab

    show(f"healed {lab.heal(home(), unit, kind)} faults")


@app.command()
def plant() -> None:
    """Plant the three documented faults that a first look at the product shows (see docs/lab.md)."""
    from fabric_health.lab import lab

    for kind, unit, value in PLANTED:
        lab.add_fault(home(), kind, unit, value)
        show(f"planted {kind} on {unit}" + (f" = {value}" if value else ""))


@app.command("path")
def lab_path() -> None:
    """Print the directory that holds the lab's state, keys, logs and data."""
    typer.echo(Path(home()))
