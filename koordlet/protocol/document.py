"""JSON text to a plain tree that is safe to walk: bounded depth, finite numbers, real text."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from koordlet.protocol.errors import Problem, ProtocolError, join

# Nothing in the protocol nests deeper than ten levels.
MAX_DEPTH = 64


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


def parse_json(text: str | bytes, path: str = "$") -> Any:
    """The value of a JSON text. Raises ProtocolError with line and column of a syntax error."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        tree = json.loads(text, object_pairs_hook=build_object, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise ProtocolError(Problem(path, f"byte {error.start} is not UTF-8")) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        what = error.msg if text.strip() else "empty text"
        raise ProtocolError(Problem(path, f"JSON syntax error at {where}: {what}")) from None
    except RecursionError:
        raise ProtocolError(Problem(path, f"nested deeper than {MAX_DEPTH} levels")) from None
    except ProtocolError as error:
        raise ProtocolError(Problem(path, error.message)) from None
    except ValueError:
        # Python refuses to convert integers of more than 4300 digits.
        raise ProtocolError(Problem(path, "a number has too many digits")) from None
    check_tree(tree, path)
    return tree


def check_tree(tree: Any, path: str) -> None:
    """Refuse what later code could not print, compare or walk. Raises ProtocolError."""
    stack: list[tuple[Any, str, int]] = [(tree, path, 0)]
    while stack:
        value, where, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise ProtocolError(Problem(path, f"nested deeper than {MAX_DEPTH} levels"))
        if isinstance(value, str):
            _check_text(value, where)
        elif isinstance(value, float) and value - value != 0:
            raise ProtocolError(Problem(where, "the number is not finite"))
        elif isinstance(value, dict):
            for key, item in value.items():
                _check_text(key, where)
                stack.append((item, join(where, key), depth + 1))
        elif isinstance(value, list):
            stack.extend((item, join(where, i), depth + 1) for i, item in enumerate(value))


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ProtocolError(Problem(path, "text holds half of a surrogate pair")) from None
