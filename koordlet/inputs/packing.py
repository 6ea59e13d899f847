"""Any value as msgpack, names of cgroups included that are not UTF-8 (``decision.names``)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

import msgspec

from koordlet.decision.names import meant, shown

T = TypeVar("T")

_ESCAPED = b"\xc1"
"""Before msgpack in which each text is as ``names.shown`` writes it. It begins no msgpack."""

_encode = msgspec.msgpack.Encoder(enc_hook=repr).encode


def packed(value: object) -> bytes:
    """What msgpack does not know is its ``repr``; so is all of a value that holds a number beyond
    64 bits."""
    try:
        return readable(value)
    except OverflowError:
        return _encode(ascii(value))


def readable(value: object) -> bytes:
    """For what must be read back. Raises OverflowError for a number beyond 64 bits."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _ESCAPED + _encode(_each_text(value, shown))


def unpacked(data: bytes, kind: type[T]) -> T:
    """Raises msgspec.MsgspecError."""
    if not data.startswith(_ESCAPED):
        return msgspec.msgpack.decode(data, type=kind)
    found: T = _each_text(msgspec.msgpack.decode(data[1:], type=kind), meant)
    return found


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    """The same with each text in it changed."""
    if isinstance(value, str):
        return value if isinstance(value, Enum) else change(value)
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return type(value)(**_each_text(fields, change))
    if isinstance(value, dict):
        return {_each_text(k, change): _each_text(v, change) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_each_text(each, change) for each in value))
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(_each_text(each, change) for each in value)
    return value
