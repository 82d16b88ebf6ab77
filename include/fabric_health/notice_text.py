"""A notice as text for a webhook and as a mail. Pure.

What devices said is text here, whatever it holds: one line without control characters, cut to a length, and escaped for
where it goes, so that it is no markup, mentions nobody, and ends no header of a mail.
"""

from __future__ import annotations

import html

from fabric_health.notice import Notice

SUBJECT_SHOWN = 150
SENTENCE_SHOWN = 600
UNIT_SHOWN = 250
_WORD_SHOWN = 200


def plain(text: str, limit: int) -> str:
    """Return text on one line: what is not printable becomes a space, beyond ``limit`` it ends in an ellipsis.

    Not printable are control characters, line ends, and overrides of the direction of letters.
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    return line if len(line) <= limit and len(text) <= 4 * limit else line[: limit - 1] + "…"


def subject(notice: Notice) -> str:
    """Return the subject of a mail, and the first line of a message: site, answer and verdict."""
    if notice.answer is None:
        words = "run not concluded"
    else:
        words = notice.answer.replace("_", " ")
        if notice.verdict:
            words = f"{notice.verdict.replace('_', ' ')} ({words})"
    ticket = f" · {notice.ticket}" if notice.ticket else ""
    return plain(f"{notice.site}: {words}{ticket}", SUBJECT_SHOWN)


def _lines(notice: Notice) -> list[tuple[str, str]]:
    """Return label and text of every line, unescaped; units come one a line."""
    out = [("", plain(notice.headline, SENTENCE_SHOWN))]
    if notice.verdict and notice.reason:
        out.append(("Verdict", plain(f"{notice.verdict}: {notice.reason}", SENTENCE_SHOWN)))
    if notice.settle:
        out.append(("To settle", plain(notice.settle, SENTENCE_SHOWN)))
    if notice.cause:
        out.append(("Cause", plain(notice.cause, SENTENCE_SHOWN)))
    out += [(f"• {plain(unit, _WORD_SHOWN)}", plain(what, UNIT_SHOWN)) for unit, what in notice.units]
    if notice.more:
        out.append(("", f"and {notice.more} more"))
    if notice.asks:
        out.append(("Accept as baseline?", plain(notice.asks, SENTENCE_SHOWN)))
    if notice.address:
        out.append(("Page" if notice.answer else "See", plain(notice.address, SENTENCE_SHOWN)))
    simulated = "; simulated by the lab" if notice.origin == "lab" else ""
    out.append(("Run", plain(notice.run, _WORD_SHOWN) + simulated))
    return out


def slack_text(notice: Notice) -> str:
    """Return the message for a Slack-compatible webhook: ``&``, ``<`` and ``>`` are escaped, as Slack asks for.

    Source: https://docs.slack.dev/messaging/formatting-message-text/ (escaping text).
    """
    lines = [f"{label}: {text}" if label else text for label, text in _lines(notice)]
    return "\n".join(html.escape(line, quote=False) for line in (subject(notice), *lines))


def mail_body(notice: Notice) -> str:
    """Return the body of a mail, in HTML that loads nothing."""
    rows = []
    for label, text in _lines(notice):
        shown = html.escape(text)
        if text == notice.address and text.startswith(("http://", "https://")):
            shown = f'<a href="{shown}">{shown}</a>'
        rows.append(f"<p>{f'<b>{html.escape(label)}</b>: ' if label else ''}{shown}</p>")
    return f"<h3>{html.escape(subject(notice))}</h3>\n" + "\n".join(rows)
