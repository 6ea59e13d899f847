"""The terminal of a live view: keys one by one, and lines with their styles."""

from __future__ import annotations

import os
import signal
import sys
import termios
import tty
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from koordlet.drawing.spans import Line

if TYPE_CHECKING:
    from rich.text import Text

KEY_BYTES = 1024
_STYLES = {
    "LS": "bright_blue",  # the plain one cannot be read on black
    "BE": "yellow",
    "system": "cyan",
    "head": "bold",
    "dim": "dim",
    "warn": "magenta",
    "bad": "bold red",
}


def text(lines: Iterable[Line]) -> Text:
    """For rich, which is loaded here."""
    from rich.text import Text

    found = Text(no_wrap=True, overflow="crop")
    for number, line in enumerate(lines):
        if number:
            found.append("\n")
        for span in line:
            found.append(span.text, _STYLES.get(span.style))
    return found


@contextmanager
def keyboard_of_terminal() -> Iterator[int | None]:
    """The descriptor that keys come from, each at once and without an echo; None without one."""
    terminal = _terminal()
    if terminal is None:
        yield None
        return
    before = termios.tcgetattr(terminal)
    # A shell starts a background job with SIGINT ignored, and Ctrl-C would not end it.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        tty.setcbreak(terminal)
        yield terminal
    finally:
        signal.signal(signal.SIGINT, handler)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _terminal() -> int | None:
    """stdin, or the terminal itself where stdin is something else: a script gives its background
    jobs /dev/null. In another process group than the terminal's, reading it would stop us."""
    if sys.stdin.isatty():
        return sys.stdin.fileno()
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return None
    if os.tcgetpgrp(terminal) == os.getpgrp():
        return terminal
    os.close(terminal)
    return None
