"""Which sites this Airflow serves, from the environment alone: parsing a DAG file reads no site file."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "FABRIC_HEALTH_SITE_FILES"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")


@dataclass(frozen=True)
class SiteEntry:
    """A site that this Airflow serves: its name, its file, and when its weekly run is due (cron, UTC)."""

    name: str
    file: str
    weekly_cron: str = "0 3 * * 1"

    def suffix(self, of_many: bool) -> str:
        """Return what sets this site's DAG ids apart: nothing where there is only one site."""
        return f"__{self.name}" if of_many else ""


def site_entries() -> tuple[SiteEntry, ...]:
    """Return the sites of ``$FABRIC_HEALTH_SITE_FILES``: ``name=file[@cron]`` separated by ``;``, the lab by default.

    Raises ValueError that names the entry at fault; Airflow shows it as an import error.
    """
    raw = os.environ.get(VARIABLE, "").strip()
    if not raw:
        return (SiteEntry("lab", str(Path(__file__).resolve().parents[2] / "sites" / "lab.yaml")),)
    out = []
    for item in filter(None, (part.strip() for part in raw.split(";"))):
        name, equals, rest = item.partition("=")
        file, _, cron = rest.partition("@")
        if not equals or not _NAME.fullmatch(name.strip()) or not file.strip():
            raise ValueError(f"{VARIABLE}: {item!r}; expected name=/path/site.yaml or name=/path/site.yaml@0 3 * * 1")
        out.append(SiteEntry(name.strip(), file.strip(), cron.strip() or SiteEntry.weekly_cron))
    if len({e.name for e in out}) != len(out):
        raise ValueError(f"{VARIABLE}: a site is named twice; expected each once")
    return tuple(out)


def site_entry(name: str) -> SiteEntry:
    """Return the entry of one site. Raises ValueError that lists the names."""
    for e in site_entries():
        if e.name == name:
            return e
    raise ValueError(f"no site {name!r}; this Airflow serves {', '.join(e.name for e in site_entries())}")
