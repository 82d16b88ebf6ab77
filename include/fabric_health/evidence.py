"""Raw evidence: what was asked of a unit and exactly what came back.

Evidence is kept before anything is parsed, never edited except for redaction, and named by the SHA-256 of its
content. Parsers read evidence and nothing else, so a result can be recomputed from it at any time.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote

MIB = 1 << 20


@dataclass(frozen=True)
class Command:
    """One read-only command for one unit.

    ``name`` is stable and unique within a check (``ibstat``, ``ethtool_i:ens1np0``). ``argv`` is a list, never a
    shell string. ``optional`` marks a tool that may be missing without a finding (an alternative exists).
    """

    name: str
    argv: tuple[str, ...]
    timeout_s: float = 30.0
    max_bytes: int = 4 * MIB
    optional: bool = False


class CommandStatus(StrEnum):
    """How a command ended. Only ``EXITED`` has an exit code that means something."""

    EXITED = "exited"
    TIMEOUT = "timeout"
    TRUNCATED = "truncated"
    NOT_INSTALLED = "not_installed"
    NOT_RUN = "not_run"


class ReachStatus(StrEnum):
    """How a unit answered as a whole. Everything but ``OK`` becomes a finding on the unit."""

    OK = "ok"
    PARTIAL = "partial"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    HOST_KEY_MISMATCH = "host_key_mismatch"
    AUTH_FAILED = "auth_failed"
    CLOSED_EARLY = "closed_early"
    HUNG = "hung"
    FLOODED = "flooded"
    EMPTY = "empty"
    MALFORMED = "malformed"
    NO_INTERPRETER = "no_interpreter"
    # By pods: the cluster could not start one on the node, and says why.
    NOT_PLACED = "not_placed"


@dataclass(frozen=True)
class CommandResult:
    """What one command answered. Text is UTF-8 with undecodable bytes as backslash escapes; times are UTC."""

    name: str
    argv: tuple[str, ...]
    status: CommandStatus
    exit_code: int | None
    stdout: str
    stderr: str
    started_at: datetime
    ended_at: datetime

    @property
    def ran(self) -> bool:
        """True when the command ended by itself with all its output captured."""
        return self.status is CommandStatus.EXITED


@dataclass(frozen=True)
class UnitEvidence:
    """All that one unit answered to one check in one run."""

    unit: str
    unit_kind: str
    check: str
    status: ReachStatus
    detail: str
    started_at: datetime
    ended_at: datetime
    results: tuple[CommandResult, ...] = ()

    def result(self, name: str) -> CommandResult | None:
        """Return the result of the command called ``name``, or None when it was never asked."""
        return next((r for r in self.results if r.name == name), None)

    def matching(self, prefix: str) -> dict[str, CommandResult]:
        """Return results of per-item commands ``prefix:item``, keyed by item."""
        head = prefix + ":"
        return {r.name[len(head) :]: r for r in self.results if r.name.startswith(head)}


@dataclass(frozen=True)
class StoredEvidence:
    """A reference to stored evidence: object key and SHA-256 of the uncompressed bytes."""

    unit: str
    key: str
    sha256: str
    status: ReachStatus
    detail: str = ""
    commands: int = 0


@dataclass
class Redactor:
    """Replaces secrets before evidence is stored.

    ``literals`` are exact secrets known to the caller (passwords, keys of the connections in use); the patterns
    catch the forms secrets take in device output and environments.
    """

    literals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Also as they stand within JSON and within an address.
        forms = {f for s in self.literals for f in (s, json.dumps(s)[1:-1], quote(s, safe=""))}
        self.literals = tuple(sorted((f for f in forms if len(f) >= 4), key=lambda f: (-len(f), f)))

    def text(self, value: str) -> str:
        """Return ``value`` with every known secret replaced by ``<redacted>``."""
        for secret in self.literals:
            value = value.replace(secret, "<redacted>")
        held = _words_of(value)
        for pattern, replacement, words in _SECRET_PATTERNS:
            if held is None or not held.isdisjoint(words):
                value = pattern.sub(replacement, value)
        return value

    def argv(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """Return a command with every known secret replaced, also one that follows its option."""
        out: list[str] = []
        for before, word in zip(("", *argv), argv, strict=False):
            secret = _SECRET_OPTION.fullmatch(before) and not word.startswith("-")
            out.append("<redacted>" if secret else self.text(word))
        return tuple(out)

    def evidence(self, evidence: UnitEvidence) -> UnitEvidence:
        """Return a copy of ``evidence`` with argv, stdout, stderr and detail redacted."""
        results = tuple(
            replace(
                r,
                argv=self.argv(r.argv),
                stdout=self.text(r.stdout),
                stderr=self.text(r.stderr),
            )
            for r in evidence.results
        )
        return replace(evidence, detail=self.text(evidence.detail), results=results)


# What follows `token` in names that hold no secret: vocabularies, and counts and ids of tokens with a number as value.
_BEARER = (
    r"token(?!iz)(?<!(?:bos|eos|pad|unk|sep|cls)_token)"
    r"(?!(?:s|_)[\w.-]{0,64}\\{0,3}\"?[ \t]*[:=][ \t]*-?\d[\d.,]{0,20}(?:e[+-]?\d{1,3})?(?:[\s,;)}\]\"']|\Z))"
)
_WORDS = r"password|passwd|passphrase|passkey|secret|api[_-]?key|access[_-]?key|secret[_-]?key|community"
_KEYWORDS = rf"(?:{_WORDS}|{_BEARER})[\w.-]{{0,64}}"
# A value that says there is none is no secret.
_NO_VALUE = r"(?!(?:null|true|false)(?:[\s,;}\])]|\Z))"
_BARE_VALUE = r"[^\s,;&\"'{\[]+"
# How devices write the type of a secret: 7, 5, and 8a for AES in Arista EOS.
_TYPE = r"\d{1,2}a?"

_CREDENTIALS = ("password", "passwd", "passphrase", "secret", "token")
_API_KEYS = ("api-key", "api_key", "apikey", "access-key", "access_key", "accesskey")
_ASSIGNED = (*_CREDENTIALS, *_API_KEYS, "passkey", "community")
_DEVICE = (*_CREDENTIALS, "community", "-key", "key-string", "key-octet-string", "localizedkey", "-server key")

# The secret's TYPE stays (a change from type 7 to sha512 is a fact worth seeing), its value goes. The last member are
# words in lower case of which every match holds one: megabytes that hold none need not be searched for the pattern.
_SECRET_PATTERNS: tuple[tuple[re.Pattern[str], str, tuple[str, ...]], ...] = (
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S),
        "<redacted private key>",
        ("private key",),
    ),
    (re.compile(r"\$(1|2[abxy]?|5|6|8|9|y|nvsec)\$[^\s\"',;]+"), r"$\1$<redacted>", ("$",)),
    # Bounded repeats: a hostile line of millions of characters must cost linear time.
    # Blanks, never line breaks: a keyword that ends its line must not take the next line with it. The lookahead and
    # the possessive group keep the type, and make redacting twice the same as redacting once.
    (
        re.compile(
            r"(?i)(\b(?:password|secret|passphrase|(?<!send-)(?<!set )(?<!match )community|auth-key|key-string|md5-key|"
            r"pre-shared-key|localizedkey|authentication-key|message-digest-key|key-octet-string|"
            r"radius-server key|tacacs-server key)"
            # The number of a key before its digest (`authentication-key 1 md5 7 ...`), the digest, the type.
            r"(?:[ \t]+\d{1,10}(?=[ \t]+(?:md5|sha)))?+(?:[ \t]+(?:sha\d{1,3}|md5|encrypted)(?=[ \t]))?+"
            rf"(?:[ \t]+{_TYPE}(?=[ \t]))?+[ \t]+)"
            # Settings of NX-OS about passwords.
            r"(?!strength-check\b|secure-mode\b|prompt username\b)"
            r"(?![{\[:=])[\"']?[^\s\"'<$]+[\"']?"
        ),
        r"\1<redacted>",
        _DEVICE,
    ),
    # A key with its type; `ntp server ... key 7 prefer` names a key. Of MACsec, the key's own name comes before.
    (
        re.compile(
            r"(?m)((?:^|[ \t])key[ \t]+(?:[0-9a-f]{2,64}[ \t]+)?+(?:[05678]|8a)[ \t]+)"
            r"(?!<redacted>|key-string|prefer|iburst|burst|version|vrf|use-vrf|source|minpoll|maxpoll|[{\[:=])\S+"
        ),
        r"\1<redacted>",
        ("key ", "key\t"),
    ),
    (
        re.compile(
            r"(?i)(\b(?:radius|tacacs)-server[ \t][^\n]{0,200}?[ \t]key[ \t]+"
            rf"(?:{_TYPE}[ \t]+)?+)(?!<redacted>)\S+"
        ),
        r"\1<redacted>",
        ("radius-server", "tacacs-server"),
    ),
    # Where traps go, with the community they carry.
    (
        re.compile(r"(?i)(\bsnmp-server host[ \t][^\n]{0,200}?\bversion[ \t]+(?:1|2c)[ \t]+)(?!<redacted>)\S+"),
        r"\1<redacted>",
        ("snmp-server host",),
    ),
    (
        re.compile(
            r"(?i)(\b(?:auth[ \t]+(?:md5|sha[\w-]*)|priv(?:[ \t]+(?:aes[\w-]*|des))?)[ \t]+)"
            r"(?:0x[0-9a-f]{8,}|[0-9a-f]{16,})"
        ),
        r"\1<redacted>",
        ("auth ", "auth\t", "priv ", "priv\t"),
    ),
    # SNMP communities are the keys of their table.
    (re.compile(r"\"[^\"\n]+\"(?=\s*:\s*\{\s*\"TYPE\"\s*:\s*\"R[OW]\")"), '"<redacted>"', ('"type"',)),
    (re.compile(r"(\"read(?:only|write)-community\"\s*:\s*\{\s*)\"[^\"\n]+\""), r'\1"<redacted>"', ("community",)),
    # A quoted value stays quoted, and what stands behind a quoted key is quoted: JSON remains JSON. A value behind a
    # bare word (`--session-token=...`, which may itself be within a JSON string) is replaced without quotes.
    (
        re.compile(
            rf"(?i)({_KEYWORDS}(?:\"\s{{0,64}}|[ \t]{{0,64}})[:=]\s{{0,64}})"
            r"(\"(?!\$\w{1,5}\$<redacted>\")(?:[^\"\\\n]|\\.)+\"|'[^'\n]+')"
        ),
        r'\1"<redacted>"',
        _ASSIGNED,
    ),
    # JSON within a JSON string.
    (
        re.compile(rf"(?i)({_KEYWORDS}\\{{1,3}}\"[ \t]{{0,8}}:[ \t]{{0,8}}\\{{1,3}}\")[^\"\\\n]+"),
        r"\1<redacted>",
        _ASSIGNED,
    ),
    (
        re.compile(rf"(?i)({_KEYWORDS}\"[ \t]{{0,64}}[:=][ \t]{{0,64}})(?!<redacted){_NO_VALUE}{_BARE_VALUE}"),
        r'\1"<redacted>"',
        _ASSIGNED,
    ),
    (
        re.compile(rf"(?i)({_KEYWORDS}[ \t]{{0,64}}[:=][ \t]{{0,64}})(?!<redacted){_NO_VALUE}{_BARE_VALUE}"),
        r"\1<redacted>",
        _ASSIGNED,
    ),
    # Options on a command line.
    (
        re.compile(
            r"(?i)(-(?<![^\s\"']-)-?(?:[a-z0-9]{1,20}-){0,4}"
            r"(?:password|passwd|passphrase|secret|token|api-?key|access-?key|secret-?key)[ \t]+)"
            r"(?!-|<redacted>)[^\s\"']+",
            re.M,
        ),
        r"\1<redacted>",
        (*_CREDENTIALS, *_API_KEYS),
    ),
    (
        re.compile(r"(?i)\b(authorization\\?\"?\s{0,8}[:=]\s{0,8}\\?[\"']?(?:bearer|basic|token)[ \t]+)[^\s\"'\\<]+"),
        r"\1<redacted>",
        ("authorization",),
    ),
    # Signatures of S3 requests, in a header or in an address.
    (re.compile(r"(?i)(\b(?:x-amz-)?signature=)[0-9a-f]{16,}"), r"\1<redacted>", ("signature=",)),
    (re.compile(r"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*"), "<redacted jwt>", ("eyj",)),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), "<redacted access key>", ("akia", "asia")),
    # Tokens of Hugging Face, GitHub, GitLab and NVIDIA's registry, by their form.
    (
        re.compile(r"\b(?:hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{36,}|glpat-[\w-]{20,}|nvapi-[\w-]{20,})"),
        "<redacted token>",
        ("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "glpat-", "nvapi-"),
    ),
    (re.compile(r"(?i)(\b\w{1,20}://[^\s:/@]{0,128}:)[^\s@/]{1,256}(@)"), r"\1<redacted>\2", ("://",)),
)
_WORDS_OF_SECRETS = frozenset(w for _, _, words in _SECRET_PATTERNS for w in words)
# What a pattern that ignores case takes for an s, a k or an i, and lower case does not turn into one.
_LOOKALIKES = "\u017f\u212a\u0130\u0131"


def _words_of(value: str) -> set[str] | None:
    """Return the words of secrets that a text holds, in any case; None when that cannot be told cheaply."""
    if not value.isascii() and any(c in value for c in _LOOKALIKES):
        return None
    lowered = value.lower()
    return {w for w in _WORDS_OF_SECRETS if w in lowered}


# An option of a command whose value is the next argument.
_SECRET_OPTION = re.compile(
    r"(?i)--?(?:[a-z0-9]{1,20}[-_]){0,4}(?:password|passwd|passphrase|secret|token|api-?key|access-?key|secret-?key)"
)


def to_bytes(evidence: UnitEvidence) -> bytes:
    """Serialise evidence to canonical JSON (sorted keys, UTF-8): equal evidence gives equal bytes."""
    return json.dumps(asdict(evidence), sort_keys=True, ensure_ascii=False, default=_iso).encode("utf-8")


def from_bytes(data: bytes) -> UnitEvidence:
    """Read evidence written by :func:`to_bytes`. Raises ValueError when the bytes are not evidence."""
    try:
        raw: dict[str, Any] = json.loads(data)
        results = tuple(
            CommandResult(
                **{
                    **r,
                    "argv": tuple(r["argv"]),
                    "status": CommandStatus(r["status"]),
                    "started_at": datetime.fromisoformat(r["started_at"]),
                    "ended_at": datetime.fromisoformat(r["ended_at"]),
                }
            )
            for r in raw.pop("results")
        )
        raw["status"] = ReachStatus(raw["status"])
        raw["started_at"] = datetime.fromisoformat(raw["started_at"])
        raw["ended_at"] = datetime.fromisoformat(raw["ended_at"])
        return UnitEvidence(results=results, **raw)
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"not stored evidence: {error}") from error


def content_hash(data: bytes) -> str:
    """Return the SHA-256 hex digest that names a piece of evidence."""
    return hashlib.sha256(data).hexdigest()


def _iso(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"cannot serialise {type(value).__name__}")
