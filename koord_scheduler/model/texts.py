"""What users write into labels and annotations: hostile until it is read."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from koordlet.protocol.document import UNREADABLE

T = TypeVar("T")

MOST_CHARACTERS = 16_384


def decoded(decoder: msgspec.json.Decoder[T], text: str | None) -> T | None:
    """None where there is no text, and where it is too long or cannot be read."""
    if not text or len(text) > MOST_CHARACTERS:
        return None
    try:
        return decoder.decode(text)
    except UNREADABLE:
        return None


def whole_number(text: str, most_digits: int) -> int | None:
    """With at most one sign. None for anything else, and for more digits."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > most_digits:
        return None
    return int(text)
