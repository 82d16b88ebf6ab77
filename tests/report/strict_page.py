"""A strict reader of the pages that are rendered."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import PurePosixPath

VOID = {"meta", "br", "hr", "img", "link", "input", "wbr"}
ALLOWED = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "nav",
        "main",
        "footer",
        "section",
        "div",
        "span",
        "p",
        "a",
    ),
    *("h1", "h2", "h3", "b", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre"),
    *("del", "ins", "figure", "svg", "rect", "g", "path", "line", "text", "defs", "clippath"),
}


class Page(HTMLParser):
    """A strict reader: every element is closed in order, ids are unique, nothing is there but what we use."""

    def __init__(self, source: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.classes: dict[str, list[str]] = {}
        self.feed(source.decode())
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        values = dict(attrs)
        assert len(values) == len(attrs), "an attribute is given twice"
        assert not [a for a in values if a.startswith("on") or a in ("src", "srcset", "action", "formaction", "style")]
        if values.get("id"):
            assert values["id"] not in self.ids
            self.ids.add(values["id"] or "")
        if values.get("href") is not None:
            self.links.append(values["href"] or "")
        self.elements.append((tag, values))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and "style" not in self.open:
            self.words.append(data.strip())
            for tag, values in reversed(self.elements):
                if tag in self.open and values.get("class"):
                    self.classes.setdefault(values["class"] or "", []).append(data.strip())
                    break

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(pages: dict[str, bytes]) -> dict[str, Page]:
    """Read every file of a report, and follow every link in it."""
    found = {name: Page(body) for name, body in pages.items()}
    for name, p in found.items():
        for link in p.links:
            target, _, fragment = link.partition("#")
            parts: list[str] = list(PurePosixPath(name).parent.parts) if target else []
            for part in PurePosixPath(target).parts:
                parts = parts[:-1] if part == ".." else [*parts, part]
            at = "/".join(parts) if target else name
            assert at in found, f"{name}: {link} leads nowhere"
            assert not fragment or fragment in found[at].ids, f"{name}: {link} has no such place"
    return found
