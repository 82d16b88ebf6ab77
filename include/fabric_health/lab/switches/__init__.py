"""What lab switches answer: five platforms' command lines in their own formats, from the site file and the faults.

Pure and deterministic: the same arguments give the same text. A healthy switch shows exactly what the site file
expects of it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache

from fabric_health.lab.answer import Answer
from fabric_health.lab.state import LabState
from fabric_health.lab.switches.configs import cumulus as cumulus_config
from fabric_health.lab.switches.configs import eos as eos_config
from fabric_health.lab.switches.configs import nxos as nxos_config
from fabric_health.lab.switches.configs import onyx as onyx_config
from fabric_health.lab.switches.configs import sonic as sonic_config
from fabric_health.lab.switches.device import Device
from fabric_health.lab.switches.shows import cumulus, eos, nxos, onyx, sonic
from fabric_health.lab.switches.shows.view import View
from fabric_health.lab.switches.wiring import device
from fabric_health.site import Site, Switch

__all__ = ["answer", "render_config"]

_CONFIGS: dict[str, Callable[[Device], str]] = {
    "cumulus": cumulus_config.render,
    "sonic": sonic_config.render,
    "onyx": onyx_config.render,
    "eos": eos_config.render,
    "nxos": nxos_config.render,
}
_SHOWS: dict[str, Callable[[View, str], Answer]] = {
    "cumulus": cumulus.answer,
    "sonic": sonic.answer,
    "onyx": onyx.answer,
    "eos": eos.answer,
    "nxos": nxos.answer,
}


def render_config(switch: Switch, site: Site, state: LabState, now: datetime) -> str:
    """Return the running configuration as the switch prints it at ``now``, volatile header lines included."""
    return _config(device(switch, site, state), now)


def answer(switch: Switch, site: Site, state: LabState, command: str, now: datetime) -> Answer:
    """Return what ``switch`` answers to a command line from the SSH exec channel.

    An unknown command gets the platform's own error text and exit code.
    """
    this = device(switch, site, state)
    return _SHOWS[switch.platform](View(this, state, now, lambda: _config(this, now)), command.strip())


@lru_cache(maxsize=1024)
def _body(this: Device) -> str:
    return _CONFIGS[this.switch.platform](this)


def _config(this: Device, now: datetime) -> str:
    platform, body = this.switch.platform, _body(this)
    if platform == "eos":
        return f"! Command: show running-config\n{body}"
    if platform == "nxos":
        stamp = f"{now:%a %b} {now.day:2d} {now:%H:%M:%S %Y}"
        return (
            f"\n!Command: show running-config\n!Running configuration last done at: {stamp}\n!Time: {stamp}\n\n{body}"
        )
    if platform == "onyx":
        return f'##\n## Running database "initial"\n## Generated at {now:%Y/%m/%d %H:%M:%S} +0000\n{body}'
    return body
