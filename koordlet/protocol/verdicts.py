"""What the JSON of annotations says, decided once for each text.

Strategies and hooks read the same annotations each second. A refusal costs as much as a good value
and is kept as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from koordlet.protocol import limits
from koordlet.protocol.decode import decode_limited
from koordlet.protocol.document import parse_limited
from koordlet.protocol.errors import Problem, ProtocolError
from koordlet.protocol.memo import Memo
from koordlet.protocol.validate import validate

T = TypeVar("T")


class _Verdict(msgspec.Struct, frozen=True):
    value: Any = None
    problems: tuple[Problem, ...] = ()


_Decoder = Callable[[str], T | None]

_known: Memo[tuple[int, str], _Verdict] = Memo(limits.VERDICT_CACHE_BYTES)
"""By the number of the decoder."""
_numbers = itertools.count()


def decoder(cls: type[T], values: int) -> _Decoder[T]:
    """JSON text to a ``cls``: unknown keys ignored, ``null`` is absent, rules between fields kept.
    ``values``: how many the text may hold. What comes back raises ProtocolError.

    The same text gives the same value, which nobody may change.
    """
    number = next(_numbers)

    def decoded(text: str) -> T | None:
        verdict = _known.get((number, text))
        if verdict is None:
            verdict, size_bytes = _judged(cls, values, text)
            _known.put((number, text), verdict, size_bytes)
        if verdict.problems:
            raise ProtocolError(verdict.problems)
        return verdict.value  # type: ignore[no-any-return]

    return decoded


def _judged(cls: type[Any], values: int, text: str) -> tuple[_Verdict, int]:
    """With the memory that it takes."""
    try:
        tree, count = parse_limited(text, values)
        value = None if tree is None else decode_limited(cls, tree)
        problems = tuple(itertools.islice(validate(value), limits.PROBLEMS_PER_KEY))
    except ProtocolError as error:
        value, problems = None, error.problems
    if problems:
        count = 4 * len(problems)
        return _Verdict(problems=problems), len(text) + count * limits.VALUE_BYTES
    memory_bytes = count * limits.VALUE_BYTES + _cpus(value) * limits.CPU_BYTES
    return _Verdict(value), len(text) + memory_bytes


def _cpus(value: Any) -> int:
    """CPUs in the lists of a document, which are at most two levels down."""
    if isinstance(value, frozenset):
        return len(value)
    if isinstance(value, msgspec.Struct):
        fields = (getattr(value, name) for name in value.__struct_fields__)
        return sum(len(each) for each in fields if isinstance(each, frozenset))
    return sum(map(_cpus, value)) if isinstance(value, tuple) else 0
