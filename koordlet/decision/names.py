r"""Names of cgroups for people, logs and messages.

The kernel takes any bytes but ``/`` and NUL for a name. Inside the program a name is a ``str`` as
``os.fsdecode`` makes it, which keeps bytes that are not UTF-8 as lone surrogates. Such a string
cannot be encoded as UTF-8, and a control character in it can steer a terminal. So a name leaves the
program as ``shown`` writes it: printable text, ``\xNN`` for each byte of anything else, and ``\\``
for a backslash. ``meant`` reads that back.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

_NAMES = (sys.getfilesystemencoding(), "surrogateescape")
"""What ``os.fsencode`` and ``os.fsdecode`` go by."""
_BACKSLASH = "\\"
_ESCAPE = re.compile(rb"\\(?:\\|x([0-9a-f]{2}))")


def shown(name: str) -> str:
    r"""``name`` as people see it; no two names look the same.

    >>> shown("be/caf\udce9")
    'be/caf\\xe9'
    """
    if name.isascii() and name.isprintable():
        return name.replace(_BACKSLASH, 2 * _BACKSLASH)
    return "".join(
        2 * _BACKSLASH if each == _BACKSLASH else _harmless(each) for each in _utf8(name)
    )


def meant(text: str) -> str:
    """The name that ``shown`` writes as ``text``. A backslash that begins no escape stands for
    itself."""
    if _BACKSLASH not in text and text.isascii():
        return text
    return _ESCAPE.sub(_byte, text.encode("utf-8", "surrogateescape")).decode(*_NAMES)


def mentions(text: str, name: str) -> bool:
    """Return whether the text has the name as a whole: ``web`` is neither in ``web-0`` nor in
    ``shop/web``."""
    return name in text and bool(re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w-]|\.\w)", text))


def harmless(text: str) -> str:
    r"""A message that may hold names as they are: nothing in it steers a terminal, and every
    encoder takes it. Printable text, backslashes included, stays as it is, so that what ``shown``
    has written is not changed again."""
    return text if text.isprintable() else "".join(map(_harmless, _utf8(text)))


def encodable(text: str) -> str:
    r"""``text`` with ``\xNN`` for bytes that are not UTF-8, and nothing else changed: protobuf and
    JSON take that."""
    if text.isascii():
        return text
    return _utf8(text).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def encodable_all(value: Any) -> Any:
    """The same for every text in ``value``, as ``msgspec.to_builtins`` makes it."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, Mapping):
        return {encodable_all(key): encodable_all(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [encodable_all(each) for each in value]
    return value


def _utf8(text: str) -> str:
    """Decoded as UTF-8 whatever the locale is: the same bytes look the same everywhere."""
    for how in (_NAMES, ("utf-8", "surrogateescape")):
        try:
            return text.encode(*how).decode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            continue
    # A surrogate that stands for no byte: it came from no file name.
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")


def _harmless(character: str) -> str:
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def _byte(escape: re.Match[bytes]) -> bytes:
    return b"\\" if escape[1] is None else bytes.fromhex(escape[1].decode())
