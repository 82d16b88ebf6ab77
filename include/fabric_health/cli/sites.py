"""``fabric-health site``: site files."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fabric_health.cli.terminal import grid, show
from fabric_health.errors import SiteError
from fabric_health.site import Site, load_site

app = typer.Typer(help="Check and show site files.", no_args_is_help=True)


@app.command()
def validate(file: Annotated[Path, typer.Argument(help="site file (YAML)")]) -> None:
    """Check a site file; every fault is printed as file:line: key: what was expected."""
    site = load_site(file)
    if faults := [line for told in _faults_of_settings(site) for line in told.splitlines()]:
        raise SiteError("\n".join(_with_lines(file, faults)))
    show(
        f"{file}: site {site.name!r} is valid: {len(site.nodes)} nodes, {len(site.switches)} switches, "
        f"{len(site.cables)} cables"
    )
    today = datetime.now(UTC).date()
    for entry in site.expected_changes:
        if entry.expired(today):
            what = entry.attribute or entry.metric or entry.rule
            show(f"{file}: expected_changes.{entry.number}: {what}: {entry.told(today)}; what it names is news again")


def _faults_of_settings(site: Site) -> Iterator[str]:
    """Yield what is wrong in ``jobs`` and ``checks``, which each reader of them validates for itself."""
    from fabric_health.checks import registry
    from fabric_health.jobs import settings as jobs

    readers: list[Callable[[Site], object]] = [jobs.settings]
    names = [e.name for e in registry.ENTRIES]
    for name, given in site.checks.items():
        at = f"{site.path}: checks.{name}"
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"expected one of: {', '.join(names)}"
            yield f"{at}: unknown check; {hint}"
        elif find_spec(f"fabric_health.checks.{name}.settings") is None:
            if given:
                yield f"{at}: the check takes no settings"
        else:
            readers.append(import_module(f"fabric_health.checks.{name}.settings").settings)
            if (fabrics := registry.check(name).fabrics) is not None:
                readers.append(fabrics)
    seen: set[str] = set()
    for read in readers:
        try:
            read(site)
        except SiteError as error:
            if str(error) not in seen:  # a check that reads its settings again to name its units says the same again
                seen.add(str(error))
                yield str(error)


def _with_lines(file: Path, faults: list[str]) -> list[str]:
    """Return each ``file: key: message`` as ``file:line: key: message``, in the order of the file."""
    from fabric_health.site_file import read_site_file

    source = read_site_file(file)
    placed = []
    for fault in faults:
        key, _, message = fault.removeprefix(f"{file}: ").partition(": ")
        message = message.removeprefix("Value error, ")  # pydantic's word for what a validator of ours raises
        placed.append(source.fault(tuple(int(p) if p.isdecimal() else p for p in key.split(".")), message))
    return sorted(placed, key=lambda told: int(told.removeprefix(f"{file}:").partition(":")[0]))


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
