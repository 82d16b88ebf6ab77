"""Where a lab keeps its files, and whether its server is alive."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from fabric_health.processes import Started

USER = "fabric"
CONNECTION_ID = "lab_ssh"
EXIT_PORT_TAKEN = 3


@dataclass(frozen=True)
class Place:
    """Paths of one lab under the home directory of local state; ``down`` removes ``root`` as a whole."""

    home: Path

    @property
    def root(self) -> Path:
        """Directory of everything the lab keeps."""
        return self.home / "lab"

    @property
    def state(self) -> Path:
        """Active faults."""
        return self.root / "state.json"

    @property
    def server(self) -> Path:
        """Which process plays the units."""
        return self.root / "server.json"

    @property
    def log(self) -> Path:
        """Output of that process."""
        return self.root / "server.log"

    @property
    def client_key(self) -> Path:
        """Private key that every unit accepts."""
        return self.root / "client_key"

    @property
    def known_hosts(self) -> Path:
        """Host keys of all units."""
        return self.root / "known_hosts"

    @property
    def host_keys(self) -> Path:
        """Directory of the units' private host keys."""
        return self.root / "host_keys"

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lab's lock: starting, stopping and changing it happen one at a time."""
        self.home.mkdir(parents=True, exist_ok=True)
        with open(self.home / ".lab.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@dataclass(frozen=True)
class ServerRecord:
    """The process that plays the units. ``started`` (s since 1970) tells it from a later one with the same number."""

    pid: int
    started: float
    port: int
    site_path: str
    site_sha256: str

    @property
    def alive(self) -> bool:
        """True while exactly that process runs."""
        return Started(self.pid, self.started).process() is not None

    def save(self, path: Path) -> None:
        """Write the record atomically."""
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")
        temporary.replace(path)

    @classmethod
    def load(cls, path: Path) -> ServerRecord | None:
        """Read a record; None when there is none or it cannot be read."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None


def raise_descriptor_limit(wanted: int = 65_536) -> None:
    """Allow this process as many open files as it may have: a unit's listener or connection costs one each."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def package_root() -> str:
    """Return the directory that ``fabric_health`` is imported from, for processes that we start."""
    return str(Path(__file__).resolve().parents[2])


def own_environment() -> dict[str, str]:
    """Return our environment with the package importable."""
    paths = [package_root(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
