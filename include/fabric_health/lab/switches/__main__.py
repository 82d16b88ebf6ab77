"""Write the golden configs of a site's switches as the lab renders them without faults.

Usage: ``python -m fabric_health.lab.switches SITE_FILE DIRECTORY``
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from fabric_health.errors import FabricHealthError
from fabric_health.lab.state import LabState
from fabric_health.lab.switches import render_config
from fabric_health.site import load_site

# A fixed moment, so that writing the files again changes nothing.
WHEN = datetime(2026, 11, 2, 8, 0, tzinfo=UTC)


def main(arguments: list[str]) -> int:
    """Write ``DIRECTORY/<switch>.cfg`` for every switch of the site; return the exit code."""
    if len(arguments) != 2:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    try:
        site = load_site(arguments[0])
    except FabricHealthError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    target = Path(arguments[1])
    target.mkdir(parents=True, exist_ok=True)
    for switch in site.switches:
        path = target / f"{switch.name}.cfg"
        path.write_text(render_config(switch, site, LabState(WHEN), WHEN), encoding="utf-8")
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
