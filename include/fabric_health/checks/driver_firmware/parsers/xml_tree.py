"""A small XML tree for output of tools: no DTD is resolved, no entity is defined, depth and size are bounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

MAX_DEPTH = 32
MAX_ELEMENTS = 400_000


class XmlError(ValueError):
    """The text is not one complete XML document within the bounds."""


@dataclass
class Element:
    """One element: its own text (markup-free, all pieces joined) and its children in document order."""

    tag: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The element's own text, stripped."""
        return "".join(self.pieces).strip()

    def find(self, path: str) -> Element | None:
        """Return the first element at ``path`` (tags joined by ``/``, from this element's children down)."""
        here: Element | None = self
        for tag in path.split("/"):
            here = next((c for c in here.children if c.tag == tag), None) if here else None
        return here

    def all(self, tag: str) -> Iterator[Element]:
        """Yield the children called ``tag``."""
        return (c for c in self.children if c.tag == tag)

    def leaf(self, path: str) -> str | None:
        """Return the text at ``path``, None when there is no such element."""
        found = self.find(path)
        return None if found is None else found.text


def parse_xml(text: str) -> Element:
    """Return the root of ``text``. Raises XmlError for anything but one complete, harmless document."""
    builder = _Builder()
    parser = expat.ParserCreate(namespace_separator=None)
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    # An entity is how a small text becomes gigabytes, or reads a file: no tool here defines any.
    parser.EntityDeclHandler = builder.entity
    parser.ExternalEntityRefHandler = None
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as problem:
        raise XmlError(f"not a complete XML document: {problem}") from None
    except (ValueError, LookupError) as problem:  # an encoding that does not exist, or that is not text
        raise XmlError(f"not XML: {problem}") from None
    if builder.root is None:
        raise XmlError("no XML element")
    return builder.root


class _Builder:
    def __init__(self) -> None:
        self.root: Element | None = None
        self.stack: list[Element] = []
        self.elements = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.elements += 1
        if len(self.stack) >= MAX_DEPTH or self.elements > MAX_ELEMENTS:
            raise XmlError("XML is deeper or larger than any tool writes it")
        element = Element(tag, attributes)
        if self.stack:
            self.stack[-1].children.append(element)
        else:
            self.root = element
        self.stack.append(element)

    def end(self, _tag: str) -> None:
        self.stack.pop()

    def data(self, piece: str) -> None:
        self.stack[-1].pieces.append(piece)

    def entity(self, name: str, *_rest: object) -> None:
        raise XmlError(f"XML defines an entity ({name[:40]!r}), which no tool here does")
