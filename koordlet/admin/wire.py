"""Views to protobuf messages and back, by field name: the two sides mirror each other.

A view goes through plain dicts and lists, so that no field is named twice in the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from koordlet.decision.names import encodable

V = TypeVar("V", bound=msgspec.Struct)

_VALUE = "koordlet.admin.v1.Value"
_INT64 = range(-(2**63), 2**63)


def to_message(message: Any, view: msgspec.Struct, pause: Callable[[], None] = lambda: None) -> Any:
    """Fills the empty protobuf ``message`` from ``view`` and returns it. ``pause`` is called for
    each message inside it."""
    _fill(message, msgspec.to_builtins(view), pause)
    return message


def from_message(message: Any, view: type[V]) -> V:
    """Raises msgspec.ValidationError for a text outside its enumeration (a newer daemon)."""
    return msgspec.convert(_plain(message), view)


def _fill(message: Any, values: Mapping[str, Any], pause: Callable[[], None]) -> None:
    pause()
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in values.items():
        if value is None:
            continue
        field = fields[name]
        if field.message_type is None:
            if field.is_repeated:
                getattr(message, name).extend(_text(item) for item in value)
            else:
                setattr(message, name, _text(value))
        elif field.message_type.full_name == _VALUE:
            _fill_value(getattr(message, name), value)
        elif isinstance(value, Mapping):
            if field.is_repeated:  # protobuf's map<string, string>
                getattr(message, name).update({_text(k): _text(v) for k, v in value.items()})
            else:
                child = getattr(message, name)
                child.SetInParent()
                _fill(child, value, pause)
        else:
            for item in value:
                _fill(getattr(message, name).add(), item, pause)


def _fill_value(message: Any, value: int | float | str | bool) -> None:
    if isinstance(value, bool):
        message.flag = value
    elif isinstance(value, int) and value in _INT64:
        message.integer = value
    elif isinstance(value, str):
        message.text = _text(value)
    else:
        message.number = float(value)


def _text(value: Any) -> Any:
    """A text that holds a stray byte would break the answer about everything else."""
    return encodable(value) if isinstance(value, str) else value


def _plain(message: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            if field.message_type is None:
                values[field.name] = list(value)
            elif field.message_type.GetOptions().map_entry:
                # protobuf keeps no order, and differs from run to run
                values[field.name] = dict(sorted(value.items()))
            else:
                values[field.name] = [_plain(item) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            values[field.name] = None
        elif field.message_type is None:
            values[field.name] = value
        elif field.message_type.full_name == _VALUE:
            which = value.WhichOneof("kind")
            values[field.name] = None if which is None else getattr(value, which)
        else:
            values[field.name] = _plain(value)
    return values
