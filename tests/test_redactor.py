"""Redaction takes secrets, keeps their type and everything else, twice as well as once, in linear time."""

from __future__ import annotations

import re
import time
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_health import evidence
from fabric_health.evidence import Redactor

CASES = [
    ("username a secret sha512 $6$salt$hash", "username a secret sha512 $6$<redacted>"),
    ("username a password 5 $5$AOK$zgT0 role x", "username a password 5 $5$<redacted> role x"),
    ("neighbor 10.0.0.1 password 7 0822455D0A16", "neighbor 10.0.0.1 password 7 <redacted>"),
    ("password 12345", "password <redacted>"),
    ("snmp-server community s3cr3t ro", "snmp-server community <redacted> ro"),
    ("neighbor 10.0.0.1 send-community extended", "neighbor 10.0.0.1 send-community extended"),
    ("set community 65000:100", "set community 65000:100"),
    (
        "snmp-server user u r auth md5 0x4d8e3a2b1c5f priv 0x4d8e3a2b1c5f localizedkey\nntp server 10.0.0.10",
        "snmp-server user u r auth md5 <redacted> priv <redacted> localizedkey\nntp server 10.0.0.10",
    ),
    ("key 7 0822455D", "key 7 <redacted>"),
    ("tacacs-server host 10.0.0.3 key 7 0822455D", "tacacs-server host 10.0.0.3 key 7 <redacted>"),
    (
        "radius-server host 10.0.0.3 auth-port 1812 key s3cr3t",
        "radius-server host 10.0.0.3 auth-port 1812 key <redacted>",
    ),
    ("  server-private 10.0.0.3 key 7 0822455D", "  server-private 10.0.0.3 key 7 <redacted>"),
    ("snmp-server host 10.0.0.9 traps version 2c s3cr3t", "snmp-server host 10.0.0.9 traps version 2c <redacted>"),
    ("snmp-server host 10.0.0.9 version 3 priv monitor", "snmp-server host 10.0.0.9 version 3 priv monitor"),
    ("ntp authentication-key 1 md5 7 0822455D", "ntp authentication-key 1 md5 7 <redacted>"),
    ("ip ospf message-digest-key 1 md5 7 0822455D", "ip ospf message-digest-key 1 md5 7 <redacted>"),
    ("key 1 key-string 7 0822455D", "key 1 key-string 7 <redacted>"),
    ("key 1\n  key-string 0822455D", "key 1\n  key-string <redacted>"),
    ("crypto key generate rsa", "crypto key generate rsa"),
    ('"hashed-password": "$6$salt$hash"', '"hashed-password": "$6$<redacted>"'),
    ('"passwd": "plain"', '"passwd": "<redacted>"'),
    ('"SNMP_COMMUNITY": {"s3cr3t": {"TYPE": "RO"}}', '"SNMP_COMMUNITY": {"<redacted>": {"TYPE": "RO"}}'),
    ('"readonly-community": {"s3cr3t": {}}', '"readonly-community": {"<redacted>": {}}'),
    ('"token": 12345, "x": 1', '"token": "<redacted>", "x": 1'),
    (
        '{"commandline": "warp get --session-token=s3cr3t --host=a:9000", "v": 2}',
        '{"commandline": "warp get --session-token=<redacted> --host=a:9000", "v": 2}',
    ),
    ("password=s3cr3t;x", "password=<redacted>;x"),
    ("postgres://user:s3cr3t@host/db", "postgres://user:<redacted>@host/db"),
    ("redis://:s3cr3t@host/0", "redis://:<redacted>@host/0"),
    # Counts of tokens, vocabularies and settings are measurements, not secrets.
    ("Total input tokens:                      24640", "Total input tokens:                      24640"),
    ('{"total_output_tokens": 22011,"max_tokens":5,"x":1}', '{"total_output_tokens": 22011,"max_tokens":5,"x":1}'),
    ("max_tokens=512,tokens_per_s=1.5e+03", "max_tokens=512,tokens_per_s=1.5e+03"),
    ('"tokenizer": "org/model", "eos_token": "</s>"', '"tokenizer": "org/model", "eos_token": "</s>"'),
    ('"password": null, "secret": false', '"password": null, "secret": false'),
    ("no password strength-check", "no password strength-check"),
    ("ntp server 10.0.0.10 key 7 prefer", "ntp server 10.0.0.10 key 7 prefer"),
    ("GPU 0: key 1 of 3", "GPU 0: key 1 of 3"),
    ("password:\n  user: x", "password:\n  user: x"),
    # Forms that were missed.
    ("enable secret 8a kEyOfAeS role x", "enable secret 8a <redacted> role x"),
    ("tacacs-server key 8a kEyOfAeS", "tacacs-server key 8a <redacted>"),
    ("   key 0abc1234 7 06070D221D1C5A", "   key 0abc1234 7 <redacted>"),
    (
        "snmp-server user u g v3 localized f5717f44 auth md5 be2eca3fc858b62b2128 priv aes be2eca3fc858b62b2128",
        "snmp-server user u g v3 localized f5717f44 auth md5 <redacted> priv aes <redacted>",
    ),
    ("warp get --secret-key s3cr3t --tls --max-tokens 5", "warp get --secret-key <redacted> --tls --max-tokens 5"),
    ('{"cmd": "x --token s3cr3t"}', '{"cmd": "x --token <redacted>"}'),
    ('"Authorization": "Bearer s3cr3t"', '"Authorization": "Bearer <redacted>"'),
    ("GET /?X-Amz-Signature=0123456789abcdef0123&x=1", "GET /?X-Amz-Signature=<redacted>&x=1"),
    ("login with hf_" + "aB3" * 12, "login with <redacted token>"),
    (r'{"password": "s3\"cr3t", "x": 1}', '{"password": "<redacted>", "x": 1}'),
    (r'{"log": "{\"password\": \"s3cr3t\"}"}', r'{"log": "{\"password\": \"<redacted>\"}"}'),
]


@pytest.mark.parametrize(("raw", "expected"), CASES)
def test_takes_the_value_and_keeps_the_type(raw: str, expected: str) -> None:
    assert Redactor().text(raw) == expected


@pytest.mark.parametrize(("raw", "expected"), CASES)
def test_redacting_twice_is_redacting_once(raw: str, expected: str) -> None:
    assert Redactor().text(expected) == expected


def test_a_secret_that_is_known_is_found_in_the_forms_it_takes() -> None:
    text = Redactor(('p"a/s s',)).text('p"a/s s, {"x": "p\\"a/s s"}, http://h/?x=p%22a%2Fs%20s')
    assert text == '<redacted>, {"x": "<redacted>"}, http://h/?x=<redacted>'


def test_a_secret_behind_its_option_is_taken_from_an_argv() -> None:
    argv = ("warp", "get", "--secret-key", "s3cr3t", "--access_key", "--tls", "--max-tokens", "5", "--token=s3cr3t")
    clean = ("warp", "get", "--secret-key", "<redacted>", "--access_key", "--tls", "--max-tokens", "5")
    assert Redactor().argv(argv) == (*clean, "--token=<redacted>")
    assert Redactor().argv(Redactor().argv(argv)) == (*clean, "--token=<redacted>")


KEYWORDS = [
    "password",
    "secret",
    "passphrase",
    "community",
    "auth-key",
    "key-string",
    "md5-key",
    "pre-shared-key",
    "localizedkey",
    "authentication-key",
    "message-digest-key",
    "key-octet-string",
]


@pytest.mark.parametrize("keyword", [*KEYWORDS, "radius-server key", "tacacs-server key"])
def test_every_keyword_of_devices(keyword: str) -> None:
    assert Redactor().text(f"x {keyword} s3cr3t\n") == f"x {keyword} <redacted>\n"
    assert Redactor().text(f"x {keyword.title()} s3cr3t\n") == f"x {keyword.title()} <redacted>\n"


@pytest.mark.parametrize(
    "keyword",
    [
        "password",
        "passwd",
        "passphrase",
        "passkey",
        "secret",
        "api_key",
        "api-key",
        "apikey",
        "access_key",
        "access-key",
        "accesskey",
        "secret_key",
        "secretkey",
        "community",
        "token",
    ],
)
@pytest.mark.parametrize("form", ["{}=s3cr3t", '"{}": "s3cr3t"', '"{}": s3cr3t', '\\"{}\\": \\"s3cr3t\\"'])
def test_every_keyword_of_settings(keyword: str, form: str) -> None:
    for spelt in (keyword, keyword.upper()):
        assert "s3cr3t" not in Redactor().text(form.format(spelt))


_PIECES = st.one_of(
    st.sampled_from([raw for raw, _ in CASES] + [f"{k} s3cr3t" for k in KEYWORDS]),
    st.sampled_from(
        ["ghs_" + "aB3" * 12, "glpat-" + "a" * 20, "AKIA" + "A1" * 8, "eyJ" + "a" * 10 + "." + "b" * 10 + "."]
    ),
    st.sampled_from(["-----BEGIN RSA PRIVATE KEY-----\nx", " ", "\n", '"', "=", ": ", "Bearer "]),
    st.text(max_size=20),
)
_SPELT = st.sampled_from(
    [str, str, str.upper, str.swapcase, lambda t: t.replace("s", "\u017f"), lambda t: t.replace("K", "\u212a")]
)


@given(st.lists(st.tuples(_PIECES, _SPELT).map(lambda p: p[1](p[0])), max_size=6).map("".join))
def test_looking_for_words_first_misses_nothing(text: str) -> None:
    with mock.patch.object(evidence, "_words_of", return_value=None):
        everything = Redactor().text(text)
    assert Redactor().text(text) == everything


def test_no_other_letter_passes_for_one_of_ascii_when_case_is_ignored() -> None:
    letters = re.compile("(?i)" + "|".join("abcdefghijklmnopqrstuvwxyz"))
    others = "".join(map(chr, (*range(0x80, 0xD800), *range(0xE000, 0x110000))))
    assert set(letters.findall(others)) == set("\u017f\u212a\u0130\u0131")


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        " ",
        "\n",
        "password",
        "password ",
        "eyJ",
        "a://",
        "key 7 x\n",
        "tacacs-server ",
        "snmp-server host ",
        " key 7",
        "md5 1 ",
        "-----BEGIN ",
        "--a-",
        "tokens_",
        "tokens:1",
        'password"',
        '\\"',
        '"password":"\\\\',
        'token\\"',
        " key a",
        "auth md5 0",
        "signature=0",
        "authorization: ",
        "hf_",
    ],
)
def test_hostile_text_costs_linear_time(unit: str) -> None:
    text = unit * (300_000 // len(unit))
    started = time.process_time()
    Redactor().text(text)
    # A quadratic pattern takes minutes here; a linear one well under a second on any machine.
    assert time.process_time() - started < 5
