"""What keys do to the screen of ``koordlet top``. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

ORDERS = (
    "cpu",
    "memory",
    "throttled",
    "wait",
    "cpi",
    "llc",
    "cpu pressure",
    "memory pressure",
    "io pressure",
    "name",
)
FILTER_LENGTH = 64
HELP = (
    ("q", "end"),
    ("h ?", "this help; any key leaves it"),
    ("space", "stand still, go on"),
    ("s", f"next order: {', '.join(ORDERS)}"),
    ("r", "turn the order round"),
    ("/", "filter by name, class or cgroup; Enter keeps the filter, Esc drops it"),
    ("up down PgUp PgDn Home End", "scroll; also k and j"),
    ("[ ]", "an interval back into the past, forward again; the first one leaves the present"),
    ("{ }  < >", "a minute, ten minutes back and forward"),
    ("n", "back to now"),
)
_PAGE = 10
_END = 1 << 30
_SEQUENCES = {
    b"[A": "up",
    b"OA": "up",
    b"[B": "down",
    b"OB": "down",
    b"[5~": "page-up",
    b"[6~": "page-down",
    b"[H": "home",
    b"OH": "home",
    b"[1~": "home",
    b"[F": "end",
    b"OF": "end",
    b"[4~": "end",
}
_SCROLLS = {
    "up": -1,
    "k": -1,
    "down": 1,
    "j": 1,
    "page-up": -_PAGE,
    "page-down": _PAGE,
    "home": -_END,
    "end": _END,
}
_MINUTE_S = 60.0
_TRAVELS_S = {
    "{": -_MINUTE_S,
    "}": _MINUTE_S,
    "<": -10 * _MINUTE_S,
    ">": 10 * _MINUTE_S,
}


@dataclass(frozen=True)
class Screen:
    """``first``: how many pods are scrolled away. ``is_typing``: keys go into ``filter``.
    ``interval_s``: between two frames. ``travel_s``: how far keys want to go in time, forward where
    positive; ``returns``: to the present. Whoever goes there takes both back."""

    order: str = ORDERS[0]
    is_reversed: bool = False
    filter: str = ""
    is_typing: bool = False
    first: int = 0
    is_paused: bool = False
    is_help: bool = False
    is_over: bool = False
    interval_s: float = 1.0
    travel_s: float = 0.0
    returns: bool = False


def keys(data: bytes) -> Iterator[str]:
    """The keys in what a terminal has sent: characters, and names for those that send an escape
    sequence. An unknown sequence is nothing."""
    rest = data
    while rest:
        if rest[0] != 0x1B:
            size = 1 + next(
                (i for i, byte in enumerate(rest[1:]) if byte & 0xC0 != 0x80), len(rest)
            )
            yield rest[:size].decode(errors="replace")
            rest = rest[size:]
            continue
        if len(rest) == 1 or rest[1:2] not in (b"[", b"O"):
            yield "escape"
            rest = rest[1:]
            continue
        # A sequence ends with its first byte from @ to ~ after the introducer (ECMA-48).
        size = next((i for i in range(2, len(rest)) if 0x40 <= rest[i] <= 0x7E), len(rest)) + 1
        if name := _SEQUENCES.get(rest[1:size]):
            yield name
        rest = rest[size:]


def press(screen: Screen, key: str, pods: int) -> Screen:
    """The screen after a key. ``pods``: how many could be scrolled through."""
    if screen.is_typing:
        return _type(screen, key)
    if key in ("q", "Q"):
        return replace(screen, is_over=True)
    if screen.is_help:
        return replace(screen, is_help=False)
    if key in ("h", "?"):
        return replace(screen, is_help=True)
    if key == " ":
        return replace(screen, is_paused=not screen.is_paused)
    if key == "s":
        following = ORDERS[(ORDERS.index(screen.order) + 1) % len(ORDERS)]
        return replace(screen, order=following, first=0)
    if key == "r":
        return replace(screen, is_reversed=not screen.is_reversed, first=0)
    if key == "/":
        return replace(screen, is_typing=True, first=0)
    if key == "escape":
        return replace(screen, filter="", first=0)
    if key in ("[", "]"):
        way = -1 if key == "[" else 1
        return replace(screen, travel_s=screen.travel_s + way * screen.interval_s)
    if key in _TRAVELS_S:
        return replace(screen, travel_s=screen.travel_s + _TRAVELS_S[key])
    if key == "n":
        return replace(screen, returns=True, travel_s=0.0)
    if key in _SCROLLS:
        first = min(max(screen.first + _SCROLLS[key], 0), max(pods - 1, 0))
        return replace(screen, first=first)
    return screen


def _type(screen: Screen, key: str) -> Screen:
    if key in ("\r", "\n"):
        return replace(screen, is_typing=False)
    if key == "escape":
        return replace(screen, is_typing=False, filter="")
    if key in ("\x7f", "\b"):
        return replace(screen, filter=screen.filter[:-1])
    if len(key) == 1 and key.isprintable() and len(screen.filter) < FILTER_LENGTH:
        return replace(screen, filter=screen.filter + key)
    return screen
