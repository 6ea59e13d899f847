"""A stream in lines, however it is cut into pieces."""

from __future__ import annotations

MAX_LINE_BYTES = 4 << 20
"""etcd takes 1.5 MiB of an object; JSON of it may be twice as long."""


class LineTooLongError(Exception):
    pass


class Lines:
    """``rest``: the beginning of the line that is not whole yet."""

    def __init__(self) -> None:
        self.rest = bytearray()

    def take(self, piece: bytes) -> list[bytes]:
        """Return the lines that it completes, without their ends. Raises LineTooLongError."""
        *whole, left = piece.split(b"\n")
        if whole:
            whole[0] = bytes(self.rest) + whole[0]
            self.rest.clear()
        self.rest += left
        if len(self.rest) > MAX_LINE_BYTES or any(len(each) > MAX_LINE_BYTES for each in whole):
            raise LineTooLongError(f"a line of more than {MAX_LINE_BYTES} bytes")
        return [line for line in whole if line]
