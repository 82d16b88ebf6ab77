"""Tells people: Slack-compatible webhooks and e-mail, through Airflow connections.

A channel that is away, or set up wrong, is reported and never raises. No address, token or password gets into a message
or a log: connections are named by their id.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import smtplib
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fabric_health.airflow.connections import airflow_entry
from fabric_health.errors import ConnectionSettingError, FabricHealthError, UsageError
from fabric_health.notice import When
from fabric_health.notice_text import mail_body, plain, slack_text, subject

if TYPE_CHECKING:
    from fabric_health.notice import Notice

log = logging.getLogger(__name__)
CONNECTIONS_VARIABLE = "FABRIC_HEALTH_NOTIFY"
WHEN_VARIABLE = "FABRIC_HEALTH_NOTIFY_WHEN"
MAX_CHANNELS = 8
TIMEOUT_S = 10.0
# Before the second and the third try.
PAUSES_S = (2.0, 10.0)
SLACK = "https://hooks.slack.com/services"
_CONNECTION_ID = re.compile(r"[\w.-]{1,200}")
_ADDRESS = re.compile(r"[^@\s,;<>]+@[^@\s,;<>]+")
_URL_PATH = re.compile(r"[!-~]*")


@dataclass(frozen=True)
class Delivery:
    """Whether a channel was told; ``problem`` is None when it was, else why not."""

    connection: str
    problem: str | None = None


class NotToldError(FabricHealthError):
    """A channel did not take the message. ``again``: trying once more may help."""

    def __init__(self, why: str, *, again: bool) -> None:
        super().__init__(why)
        self.again = again


def channel_ids() -> tuple[str, ...]:
    """Return the connection ids of ``$FABRIC_HEALTH_NOTIFY``, comma separated; none when it is not set.

    Raises UsageError for what cannot be an id, and for more than ``MAX_CHANNELS``.
    """
    ids = tuple(dict.fromkeys(filter(None, (i.strip() for i in os.environ.get(CONNECTIONS_VARIABLE, "").split(",")))))
    for conn_id in ids:
        if not _CONNECTION_ID.fullmatch(conn_id):
            raise UsageError(f"{CONNECTIONS_VARIABLE}: expected ids of Airflow connections, separated by commas")
    if len(ids) > MAX_CHANNELS:
        raise UsageError(f"{CONNECTIONS_VARIABLE}: {len(ids)} connections; expected {MAX_CHANNELS} at most")
    return ids


def when_to_tell() -> When:
    """Return what ``$FABRIC_HEALTH_NOTIFY_WHEN`` says. Raises UsageError."""
    return When.parse(os.environ.get(WHEN_VARIABLE, ""), WHEN_VARIABLE)


def deliver(ids: tuple[str, ...], notice: Notice) -> list[Delivery]:
    """Tell every channel, one after the other; one that fails keeps no other from being told."""
    return [_deliver(conn_id, notice) for conn_id in ids]


def _deliver(conn_id: str, notice: Notice) -> Delivery:
    problem = "not tried"
    for pause in (*PAUSES_S, None):
        try:
            _send(conn_id, notice)
            log.info("told %s", conn_id)
            return Delivery(conn_id)
        except NotToldError as error:
            problem = str(error)
            if not error.again or pause is None:
                break
            log.info("%s: %s; trying again in %.0f s", conn_id, problem, pause)
            time.sleep(pause)
        except FabricHealthError as error:
            problem = str(error)
            break
        except Exception as error:
            # What an error of a library says may hold an address or a token; its name does not.
            problem = f"unexpected {type(error).__name__}"
            break
    log.warning("not told: %s: %s", conn_id, problem)
    return Delivery(conn_id, problem)


def _send(conn_id: str, notice: Notice) -> None:
    found = airflow_entry(conn_id)
    if found.conn_type in ("http", "https", "slackwebhook"):
        _post(webhook_url(found), json.dumps({"text": slack_text(notice)}).encode())
    elif found.conn_type in ("smtp", "email"):
        _mail(conn_id, recipients(found), notice)
    else:
        raise ConnectionSettingError(
            f"connection {conn_id!r} is of type {plain(str(found.conn_type), 40)!r}; expected http or slackwebhook "
            "for a webhook, smtp for mail (docs/connections.md)"
        )


def webhook_url(found: Any) -> str:
    """Return the address of a webhook: ``host`` (with ``schema``, ``port``, or as a whole URL), then ``password``.

    The password is the secret part of the path, as in Airflow's own Slack connections. Raises ConnectionSettingError,
    which repeats nothing of it.
    """
    expected = "expected a host such as hooks.slack.com/services, and the rest of the path as password"
    host = (found.host or "").strip() or (SLACK if found.conn_type == "slackwebhook" else "")
    if host and "://" not in host:
        host = f"{found.schema or 'https'}://{host}"
    try:
        parts = urlsplit(host)
        name, port = parts.hostname, parts.port or found.port
    except ValueError:
        name, port, parts = None, None, urlsplit("")
    if not name or parts.scheme not in ("http", "https") or parts.username or parts.query or parts.fragment:
        raise ConnectionSettingError(f"connection {found.conn_id!r} has no usable address; {expected}")
    path = "/".join(p for p in (parts.path.strip("/"), (found.password or "").strip().lstrip("/")) if p)
    shown = f"[{name}]" if ":" in name else name
    if not _URL_PATH.fullmatch(shown + path):
        raise ConnectionSettingError(f"connection {found.conn_id!r}: characters that no URL may hold; {expected}")
    return f"{parts.scheme}://{shown}{f':{port}' if port else ''}/{path}"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirect as what it is: not the channel, and nobody to hand the message to."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


def _post(url: str, body: bytes) -> None:
    """POST JSON. Raises NotToldError, whose text holds nothing of the address."""
    headers = {"Content-Type": "application/json", "User-Agent": "fabric-health"}
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310  # http(s) only
    try:
        urllib.request.build_opener(_NoRedirects).open(request, timeout=TIMEOUT_S).close()
    except urllib.error.HTTPError as error:
        error.close()
        busy = error.code in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
        again = busy or error.code >= HTTPStatus.INTERNAL_SERVER_ERROR
        raise NotToldError(f"the webhook answers with HTTP {error.code}", again=again) from None
    except (OSError, http.client.HTTPException) as error:
        raise NotToldError(f"no answer from the webhook: {_why(error)}", again=True) from None


def _why(error: BaseException) -> str:
    """Return what went wrong with a connection, in words that hold nothing of its address."""
    reason = getattr(error, "reason", error)
    cause = reason if isinstance(reason, BaseException) else error
    if isinstance(cause, TimeoutError):
        return f"none within {TIMEOUT_S:.0f} s"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({plain(cause.verify_message or '', 100)})"
    return (cause.strerror if isinstance(cause, OSError) else None) or type(cause).__name__


def recipients(found: Any) -> list[str]:
    """Return the addresses of ``extra.to`` of a mail connection, a text or a list. Raises ConnectionSettingError."""
    given = found.extra_dejson.get("to")
    parts = re.split(r"[,;]", given) if isinstance(given, str) else given if isinstance(given, list) else []
    to = [p.strip() for p in parts if isinstance(p, str) and p.strip()]
    if not to or not all(_ADDRESS.fullmatch(t) for t in to):
        raise ConnectionSettingError(
            f'connection {found.conn_id!r}: extra.to; expected mail addresses, e.g. "ops@example.org, net@example.org"'
        )
    if not found.extra_dejson.get("from_email"):
        raise ConnectionSettingError(f"connection {found.conn_id!r}: extra.from_email; expected the sender's address")
    return to


def _mail(conn_id: str, to: list[str], notice: Notice) -> None:
    """Send a mail. Raises NotToldError."""
    from airflow.providers.smtp.hooks.smtp import SmtpHook
    from airflow.sdk.exceptions import AirflowException

    class BoundedSmtpHook(SmtpHook):
        """Airflow's hook with our limits: it tries once, as we try again ourselves, and waits no longer than we do."""

        smtp_retry_limit = 0
        timeout = TIMEOUT_S

    try:
        with BoundedSmtpHook(smtp_conn_id=conn_id) as hook:
            hook.send_email_smtp(to=to, subject=f"[fabric-health] {subject(notice)}", html_content=mail_body(notice))
    except smtplib.SMTPRecipientsRefused:
        raise NotToldError("the mail server refuses the recipients", again=False) from None
    except smtplib.SMTPResponseException as error:
        # RFC 5321, 4.2.1: codes from 400 on are transient, from 500 on permanent.
        again = error.smtp_code < 500
        raise NotToldError(f"the mail server answers {error.smtp_code}", again=again) from None
    except (smtplib.SMTPException, AirflowException) as error:
        raise NotToldError(f"the mail server does not take it ({type(error).__name__})", again=True) from None
    except OSError as error:
        raise NotToldError(f"no answer from the mail server: {_why(error)}", again=True) from None
