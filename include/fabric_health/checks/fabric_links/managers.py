"""``sminfo`` and ``saquery SMIR``: who manages the subnet."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SMINFO = re.compile(
    r"^sminfo: sm lid (\d{1,5}) sm guid 0x([0-9a-f]{1,16}), activity count \d+ priority (\d{1,2}) state (\d) ?(\w*)$",
    re.M,
)
_FIELD = re.compile(r"^\s*(LID|GUID|Priority|SMState)\.{3,}(\S+)\s*$")
MASTER = 3
_NO_MANAGER = ("iberror: failed: query", "No SM/SA found")


@dataclass(frozen=True)
class Manager:
    """One subnet manager; ``state`` 3 is master, 2 standby, 1 discovering, 0 not active."""

    guid: str
    lid: int
    priority: int
    state: int


def parse_sminfo(text: str) -> Manager | None:
    """Return the manager that the asking port knows; None when the text names none."""
    found = _SMINFO.search(text)
    if not found or int(found[1]) > 0xFFFF:
        return None
    return Manager(found[2].zfill(16), int(found[1]), int(found[3]), int(found[4]))


def says_no_manager(said: str) -> bool:
    """Tell whether a tool says that there is no manager, which is an answer, and not that it could not ask."""
    return any(words in said for words in _NO_MANAGER)


def parse_managers(text: str) -> tuple[Manager, ...] | None:
    """Return every manager that has registered, by GUID; None when a record is not whole."""
    out: dict[str, Manager] = {}
    for record in text.split("SMInfoRecord dump:")[1:]:
        fields = {m[1]: m[2] for line in record.splitlines() if (m := _FIELD.match(line))}
        try:
            manager = Manager(
                f"{int(fields['GUID'], 16):016x}", int(fields["LID"]), int(fields["Priority"]), int(fields["SMState"])
            )
        except (KeyError, ValueError):
            return None
        out[manager.guid] = manager
    return tuple(out[g] for g in sorted(out)) or None
