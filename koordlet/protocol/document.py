"""JSON text to a plain tree that is safe to walk: bounded depth, finite numbers, real text."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec

from koordlet.protocol import limits
from koordlet.protocol.errors import Problem, ProtocolError, join

UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What msgspec raises of a text: a few kilobytes of brackets exceed the depth to which Python goes,
also in a field that nobody reads."""
_TOO_DEEP = f"nested deeper than {limits.JSON_DEPTH} levels"


class RepeatedKeys(dict[str, Any]):
    """An object in whose text the keys ``repeated`` stand more than once; the last one counts."""

    repeated: tuple[str, ...] = ()


def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dict, or RepeatedKeys where a key stands twice."""
    built = dict(pairs)
    if len(built) == len(pairs):
        return built
    marked = RepeatedKeys(built)
    counts = Counter(key for key, _ in pairs)
    marked.repeated = tuple(key for key, count in counts.items() if count > 1)
    return marked


def _no_constant(name: str) -> Any:
    raise ProtocolError(f"{name} is not JSON")


def parse_json(text: str | bytes, path: str = "$", *, repeated: bool = True) -> Any:
    """The value of a JSON text. Raises ProtocolError with line and column of a syntax error.

    ``repeated``: whether objects with repeated keys are marked.
    """
    tree = _loaded(text, path, repeated)
    check_tree(tree, path)
    return tree


def parse_limited(text: str, values: int) -> tuple[Any, int]:
    """As ``parse_json``, and how many values it holds: at most ``values``."""
    tree = _loaded(text, "$", repeated=False)
    return tree, check_tree(tree, "$", values=values)


def _loaded(text: str | bytes, path: str, repeated: bool) -> Any:
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        hook = build_object if repeated else None
        return json.loads(text, object_pairs_hook=hook, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise ProtocolError(Problem(path, f"byte {error.start} is not UTF-8")) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        what = error.msg if text.strip() else "empty text"
        raise ProtocolError(Problem(path, f"JSON syntax error at {where}: {what}")) from None
    except RecursionError:
        raise ProtocolError(Problem(path, _TOO_DEEP)) from None
    except ProtocolError as error:
        raise ProtocolError(Problem(path, error.message)) from None
    except ValueError:
        # Python refuses to convert integers of more than 4300 digits.
        raise ProtocolError(Problem(path, "a number has too many digits")) from None


def check_tree(tree: Any, path: str, *, values: int | None = None) -> int:
    """Refuse what later code could not print, compare or walk. Raises ProtocolError.

    Returns how many values there are.
    """
    level: list[Any] = [tree]
    count = 1
    for _ in range(limits.JSON_DEPTH + 1):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
                faulty = not all(map(_is_text, value))
            elif isinstance(value, list):
                below += value
                faulty = False
            else:
                faulty = _is_faulty(value)
            if faulty:
                raise ProtocolError(_fault(tree, path))
        count += len(below)
        if values is not None and count > values:
            raise ProtocolError(Problem(path, f"holds more than {values} values"))
        if not below:
            return count
        level = below
    raise ProtocolError(Problem(path, _TOO_DEEP))


def _fault(tree: Any, path: str) -> Problem:
    """The first one, with its path, which costs more to make than all else here."""
    stack: list[tuple[Any, str]] = [(tree, path)]
    while stack:
        value, where = stack.pop()
        if _is_faulty(value) or (isinstance(value, dict) and not all(map(_is_text, value))):
            is_number = isinstance(value, float)
            text = "the number is not finite" if is_number else _HALF_A_PAIR
            return Problem(where, text)
        if isinstance(value, dict):
            stack.extend((item, join(where, key)) for key, item in value.items())
        elif isinstance(value, list):
            stack.extend((item, join(where, i)) for i, item in enumerate(value))
    return Problem(path, _HALF_A_PAIR)


_HALF_A_PAIR = "text holds half of a surrogate pair"


def _is_faulty(value: Any) -> bool:
    if isinstance(value, str):
        return not _is_text(value)
    return isinstance(value, float) and value - value != 0


def _is_text(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
