"""Errors a person can act on: each message says where, what was expected and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class FabricHealthError(Exception):
    """Base of every error that fabric-health raises on purpose; the CLI prints it without a traceback."""


class UsageError(FabricHealthError):
    """The caller asked for something that does not exist or does not fit (a unit, a check, a parameter)."""


class SiteError(FabricHealthError):
    """A site file cannot be used; the message lists file, line and key of every fault found."""


def settings_error(error: ValidationError, where: str, key: str, page: str) -> SiteError:
    """Return what is wrong with settings below ``key`` of a site file: a line for each key at fault.

    ``where`` names the file, ``page`` what documents the keys.
    """
    lines = []
    for e in error.errors(include_url=False):
        if e["type"] == "extra_forbidden":
            message = f"unknown key; see {page}"
        elif e["type"] == "missing":
            message = "required key is missing"
        else:
            message = e["msg"].removeprefix("Value error, ")
            if not isinstance(e.get("input"), (dict, list)):
                message += f"; got {str(e.get('input'))[:60]!r}"
        lines.append(f"{where}: {'.'.join([key, *(str(p) for p in e['loc'])])}: {message}")
    return SiteError("\n".join(lines))


class ConnectionSettingError(FabricHealthError):
    """A connection id cannot be resolved, or what it resolves to is incomplete."""


class ContractError(FabricHealthError):
    """Rows or stored tables do not fit their contract in a way that quarantine cannot express."""


class StoreError(FabricHealthError):
    """The object store cannot be reached or refuses; the run can be repeated once it is back."""


class LabError(FabricHealthError):
    """The embedded lab cannot be started, stopped or changed."""
