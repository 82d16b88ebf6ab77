"""Keys of the lab: one host key for each unit, one client key that all of them accept."""

from __future__ import annotations

import os
from pathlib import Path

import asyncssh

from fabric_health.lab.place import Place
from fabric_health.site import Site

ALGORITHM = "ssh-ed25519"


def client_key(place: Place) -> asyncssh.SSHKey:
    """Return the client key, made when it is not there yet."""
    return _key(place.client_key)


def host_keys(site: Site, place: Place) -> dict[str, asyncssh.SSHKey]:
    """Return every unit's host key by unit name; those that are missing are made and kept."""
    place.host_keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {u.name: _key(place.host_keys / u.name) for u in site.select(None)}


def write_known_hosts(site: Site, place: Place, port: int, keys: dict[str, asyncssh.SSHKey]) -> None:
    """Write the file that clients check host keys against."""
    lines = []
    for unit in site.select(None):
        public = keys[unit.name].export_public_key("openssh").decode("ascii").split()
        host = unit.address if port == 22 else f"[{unit.address}]:{port}"
        lines.append(f"{host} {public[0]} {public[1]}\n")
    temporary = place.known_hosts.with_suffix(".tmp")
    temporary.write_text("".join(lines), encoding="ascii")
    temporary.replace(place.known_hosts)


def _key(path: Path) -> asyncssh.SSHKey:
    if path.is_file():
        return asyncssh.read_private_key(str(path))
    key = asyncssh.generate_private_key(ALGORITHM)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
        f.write(key.export_private_key("openssh"))
    return key
