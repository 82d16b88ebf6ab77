"""``fabric-health site``: site files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from fabric_health.cli.terminal import grid, show
from fabric_health.site import load_site

app = typer.Typer(help="Check and show site files.", no_args_is_help=True)


@app.command()
def validate(file: Annotated[Path, typer.Argument(help="site file (YAML)")]) -> None:
    """Check a site file; every fault is printed as file:line: key: what was expected."""
    site = load_site(file)
    show(
        f"{file}: site {site.name!r} is valid: {len(site.nodes)} nodes, {len(site.switches)} switches, "
        f"{len(site.cables)} cables"
    )


@app.command("show")
def show_site(context: typer.Context) -> None:
    """Print what the site file expands to: nodes per SKU and rack, switches and their cables."""
    from fabric_health.rooms import default_site_file

    site = load_site(context.obj or default_site_file())
    racks = Counter((n.sku_name, n.rack) for n in site.nodes)
    grid(["SKU", "rack", "nodes"], [[sku, rack, str(n)] for (sku, rack), n in sorted(racks.items())])
    grid(
        ["switch", "platform", "role", "cables", "golden config"],
        [
            [s.name, s.platform, s.role, str(len(site.cables_of(s.name))), "yes" if s.golden else "none"]
            for s in site.switches
        ],
    )
