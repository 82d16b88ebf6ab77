"""Errors a person can act on: each message says where, what was expected and what to do."""


class FabricHealthError(Exception):
    """Base of every error that fabric-health raises on purpose; the CLI prints it without a traceback."""


class UsageError(FabricHealthError):
    """The caller asked for something that does not exist or does not fit (a unit, a check, a parameter)."""


class SiteError(FabricHealthError):
    """A site file cannot be used; the message lists file, line and key of every fault found."""


class ConnectionSettingError(FabricHealthError):
    """A connection id cannot be resolved, or what it resolves to is incomplete."""


class ContractError(FabricHealthError):
    """Rows or stored tables do not fit their contract in a way that quarantine cannot express."""


class StoreError(FabricHealthError):
    """The object store cannot be reached or refuses; the run can be repeated once it is back."""


class LabError(FabricHealthError):
    """The embedded lab cannot be started, stopped or changed."""
