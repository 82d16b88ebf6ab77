"""Text of files that jobs leave behind: compressed ones are unpacked within a bound, so that they can be redacted."""

from __future__ import annotations

import io
from dataclasses import dataclass

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# A frame may ask its reader for a window of gigabytes; what writers use by default is far below this.
MAX_WINDOW_BYTES = 128 << 20


@dataclass(frozen=True)
class Unpacked:
    """Text of a file. ``complete`` is False when it was cut at the bound or damaged; ``problem`` says which."""

    text: str
    complete: bool = True
    problem: str = ""


def file_text(body: bytes, max_bytes: int) -> Unpacked:
    """Return the text of ``body``, decompressing Zstandard; at most ``max_bytes`` of it are read. Never raises."""
    if not body.startswith(ZSTD_MAGIC):
        cut = len(body) > max_bytes
        return Unpacked(_text(body[:max_bytes]), not cut, f"more than {max_bytes} bytes" if cut else "")
    import zstandard

    kept, problem = io.BytesIO(), ""
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    try:
        with decompressor.stream_reader(io.BytesIO(body), read_across_frames=True) as reader:
            while kept.tell() <= max_bytes:
                chunk = reader.read(min(1 << 20, max_bytes + 1 - kept.tell()))
                if not chunk:
                    break
                kept.write(chunk)
    except (zstandard.ZstdError, MemoryError) as error:
        problem = f"damaged Zstandard data: {error}"[:200]
    data = kept.getvalue()
    if not problem and len(data) > max_bytes:
        problem = f"more than {max_bytes} bytes once unpacked"
    elif not problem and not _frames_end(body):
        problem = "Zstandard data ends early"
    return Unpacked(_text(data[:max_bytes]), not problem, problem)


def _frames_end(body: bytes) -> bool:
    """Return whether the last frame of ``body`` is whole: the stream reader takes a cut one for the end of the data."""
    import zstandard

    rest = body
    while rest:
        frame = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompressobj()
        at = 0
        try:
            while at < len(rest) and not frame.eof:
                frame.decompress(rest[at : at + (1 << 16)])
                at += 1 << 16
        except zstandard.ZstdError:
            return False
        if not frame.eof:
            return False
        rest = frame.unused_data + rest[at:] if at < len(rest) else frame.unused_data
    return True


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
