"""A minimal interactive command line for lab switches, for people and for tools that know no exec channel."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable

from fabric_health.lab.answer import Answer
from fabric_health.site import Switch

_PROMPTS = {
    "cumulus": "fabric@{name}:mgmt:~$ ",
    "sonic": "fabric@{name}:~$ ",
    "onyx": "{name} [standalone: master] # ",
    "eos": "{name}#",
    "nxos": "{name}# ",
}
_SETTINGS = re.compile(r"^(terminal\b|enable$|disable$|no cli\b|cli session\b|stty\b|set \+o|configure terminal width)")
_PAGING_OFF = {"terminal length 0": "Pagination disabled.", "terminal width 511": "Width set to 511 columns."}


def prompt(switch: Switch) -> str:
    """Return the prompt of the switch's platform."""
    return _PROMPTS[switch.platform].format(name=switch.name)


async def converse(
    switch: Switch,
    lines: AsyncIterator[str],
    say: Callable[[str], Awaitable[None]],
    answer: Callable[[str], Answer],
) -> None:
    """Prompt, read a line, answer, until the line is ``exit`` or there are no more."""
    await say(prompt(switch))
    async for line in lines:
        command = line.strip()
        if command in ("exit", "quit", "logout"):
            return
        text = reply(switch, command, answer)
        if text and not text.endswith("\n"):
            text += "\n"
        await say(text + prompt(switch))


def reply(switch: Switch, command: str, answer: Callable[[str], Answer]) -> str:
    """Return what the command line answers to one line; session settings are accepted and change nothing."""
    if not command:
        return ""
    if _SETTINGS.match(command):
        return _PAGING_OFF.get(command, "") if switch.platform == "eos" else ""
    # Onyx takes the same commands bare in its shell and wrapped in `cli` over an exec channel.
    got = answer(f'cli "enable" "{command}"' if switch.platform == "onyx" else command)
    return got.stdout + got.stderr
