"""Secrets in switch configs: the value goes, its type stays.

A type that changes (type 7 instead of sha512) is drift worth seeing; a hash that changes is not, because every
re-encryption gives another one, and two equal masks prove nothing.
"""

from __future__ import annotations

import re

from fabric_health.evidence import Redactor

MASK = "<redacted>"

_REDACTOR = Redactor()
# Forms beyond those the evidence redactor knows: keys of AAA servers, SNMPv3 hashes, and masks that devices print.
_LINE_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(\b(?:auth|priv) (?:md5|sha\d*|aes(?:-?\d+)?|des) )(?!<)\S+"), rf"\1{MASK}"),
    (re.compile(r"\b0x[0-9a-fA-F]{16,}\b"), MASK),
    (
        re.compile(r"(\b(?:radius|tacacs)-server .{0,120}?\bkey (?:\d{1,2} )?)(?![<$]|\d{1,2} )(?:\"[^\"]*\"|\S+)"),
        rf"\1{MASK}",
    ),
    (re.compile(r"(\b(?:ntp )?authentication-key \d{1,10} (?:md5|sha1) )(?!<)(?:\d{1,2} )?\S+"), rf"\1{MASK}"),
    (re.compile(r"(\bpassword (?:\d{1,2} )?)(?![<$]|\d{1,2} )(?:\"[^\"]*\"|\S+)"), rf"\1{MASK}"),
    (re.compile(r"<removed>|(?<=\s)\*{3,}(?=\s|$)"), MASK),
)
_SECRET_KEY = re.compile(
    r"(?i)(?:^|[-_.@])(?:password|passwd|passphrase|passkey|secret|community|auth[-_]?key|priv[-_]?key|"
    r"md5[-_]?key|shared[-_]?key|private[-_]?key|key[-_]?string|token)$|^(?:hashed-password|passkey|encrypted)$"
)
_HINT = re.compile(r"(?i)pass|secret|token|key|community|auth|priv|\$|0x|basic|eyJ|AKIA|ASIA|://|<removed>|\*{3}")
_HASH_TYPE = re.compile(r"^\$([A-Za-z0-9]{1,8})\$")


def mask_text(text: str) -> str:
    """Return ``text`` with secret values replaced by ``<redacted>``; idempotent.

    Only lines that hold a word of a secret are looked at closely: a config has thousands that do not.
    """
    if "PRIVATE KEY" in text:
        return _mask(text)
    return "\n".join(_mask(line) if _HINT.search(line) else line for line in text.split("\n"))


def _mask(text: str) -> str:
    text = _REDACTOR.text(text)
    for pattern, replacement in _LINE_SECRETS:
        text = pattern.sub(replacement, text)
    return text


def is_secret_key(key: str) -> bool:
    """Return whether a JSON key holds a secret."""
    return _SECRET_KEY.search(key) is not None


def mask_value(value: object) -> str:
    """Return the mask of a secret JSON value, with its hash type when the value shows one (``$6$<redacted>``)."""
    kind = _HASH_TYPE.match(value) if isinstance(value, str) else None
    return f"${kind.group(1)}${MASK}" if kind else MASK


def masked(text: str | None) -> bool:
    """Return whether ``text`` holds a masked secret, so that it cannot be used to restore anything."""
    return text is not None and MASK in text


def same_secret(expected: str, actual: str) -> bool:
    """Return whether two masked values do not differ as far as can be known.

    A mask without a type is compatible with every type: evidence is redacted before it is parsed, and some devices
    print ``*`` for every secret.
    """
    if not (masked(expected) and masked(actual)):
        return False
    return expected == actual or MASK in (expected, actual)
