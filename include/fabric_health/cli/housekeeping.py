"""``fabric-health housekeeping``: deletes what is past its time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from fabric_health.cli.terminal import Clock, grid
from fabric_health.connections import home


def add_to(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(housekeeping)


def housekeeping(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only count what would be deleted")] = False,
) -> None:
    """Delete old evidence, what jobs left on the cluster, and old files of this machine. Never tables."""
    from fabric_health import housekeeping as steps
    from fabric_health.rooms import default_site_file, open_rooms

    rooms = open_rooms(context.obj or default_site_file(), Clock().tell)
    now = datetime.now(UTC)
    done = steps.tidy_machine(home(), now, rooms.tell, dry_run=dry_run)
    done += steps.tidy_site(rooms.store, rooms.site, rooms.connections, now, rooms.tell, dry_run=dry_run)
    grid(
        ["what", "would be deleted" if dry_run else "deleted", "left", "skipped"],
        [[t.step, str(t.deleted), str(t.left), t.skipped] for t in done],
    )
