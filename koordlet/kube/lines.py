"""A stream in lines, however it is cut into pieces."""

from __future__ import annotations

MAX_LINE_BYTES = 8 << 20
"""etcd takes 1.5 MiB of an object; JSON of it may be some times as long."""


class LineTooLongError(Exception):
    pass


def split_lines(rest: bytes, piece: bytes) -> tuple[list[bytes], bytes]:
    """Whole lines without their ends, and the beginning of the next one. ``rest`` is what the call
    before left. Raises LineTooLongError."""
    lines = (rest + piece).split(b"\n") if b"\n" in piece else [rest + piece]
    left = lines.pop()
    if len(left) > MAX_LINE_BYTES:
        raise LineTooLongError(f"a line of more than {MAX_LINE_BYTES} bytes")
    return [line for line in lines if line], left
