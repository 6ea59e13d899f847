"""Plain tree (of JSON, TOML or YAML) to typed value, every fault named by its path.

The rules are those of the reference's decoder
(docs/reference/protocol.md section 0): keys match in any
letter case, null is absent, an empty string in an optional text field is absent, a fault anywhere
refuses the whole document. On top, ranges and choices that stand with the types are enforced.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec
import msgspec.inspect as mi

from koordlet.protocol import limits
from koordlet.protocol.document import RepeatedKeys, parse_json
from koordlet.protocol.errors import Problem, ProtocolError, join
from koordlet.protocol.formats import FORMATS

T = TypeVar("T")

_INT64 = range(-(2**63), 2**63)
_REFUSED = msgspec.UNSET
_MOST = f"; at most {limits.NAME_CHARACTERS}"


def decode(cls: type[T], tree: Any, *, strict: bool, fold_case: bool = True, path: str = "$") -> T:
    """``tree`` as a ``cls``. Raises ProtocolError with all problems found.

    ``strict`` refuses unknown and repeated keys (configuration), otherwise they are ignored
    (annotations). ``fold_case`` False: keys must be written exactly.
    """
    value, problems = decode_partly(cls, tree, strict=strict, fold_case=fold_case, path=path)
    if problems:
        raise ProtocolError(problems)
    return value


def decode_partly(
    cls: type[T], tree: Any, *, strict: bool, fold_case: bool = True, path: str = "$"
) -> tuple[T, tuple[Problem, ...]]:
    """What can be read of ``tree``, and all problems found.

    A refused field has its default. Without one it is ``msgspec.UNSET``, as are a refused element
    of a list and a refused ``tree``.
    """
    run = _Run(strict, fold_case)
    value = _value(type_info(cls), tree, path, run)  # type: ignore[arg-type]
    return value, tuple(run.problems)


def decode_json(cls: type[T], text: str | bytes, *, strict: bool, path: str = "$") -> T | None:
    """As ``decode``, from JSON text; None for ``null``, which means absent."""
    tree = parse_json(text, path, repeated=strict)
    return None if tree is None else decode(cls, tree, strict=strict, path=path)


def decode_limited(cls: type[T], tree: Any) -> T:
    """As ``decode`` of an annotation, within the bounds for what pods say (``limits``)."""
    run = _Run(strict=False, fold_case=True, limited=True)
    with contextlib.suppress(_EnoughError):
        value = _value(type_info(cls), tree, "$", run)  # type: ignore[arg-type]
    if run.problems:
        raise ProtocolError(tuple(run.problems))
    return value  # type: ignore[no-any-return]


def nearest(name: str, valid: Iterable[str]) -> str:
    """The valid name most like ``name``, or ``""``."""
    folded = {candidate.lower(): candidate for candidate in valid}
    found = difflib.get_close_matches(name[:64].lower(), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else ""


@lru_cache(maxsize=256)
def type_info(cls: Hashable) -> mi.Type:
    """How a type is made up; kept, because taking it apart is slow."""
    return mi.type_info(cls)


def plain(info: mi.Type) -> mi.Type:
    """The type without the description that may stand with it."""
    while isinstance(info, mi.Metadata) and format_of(info) is None:
        info = info.type
    return info


def bare_type(info: mi.Type) -> mi.Type:
    """The type without anything that stands with it."""
    while isinstance(info, mi.Metadata):
        info = info.type
    return info


def format_of(info: mi.Type) -> str | None:
    """Name of the text format a field is written in (``formats.FORMATS``)."""
    if not isinstance(info, mi.Metadata):
        return None
    name = (info.extra or {}).get("format")
    return name if isinstance(name, str) else format_of(info.type)


class _EnoughError(Exception):
    """As many problems as are listed of one document."""


class _Run:
    """``limited``: names in the document have a bound, and so has the number of problems."""

    def __init__(self, strict: bool, fold_case: bool, *, limited: bool = False) -> None:
        self.strict = strict
        self.fold_case = fold_case
        self.limited = limited
        self.cpus = 0
        self.problems: list[Problem] = []

    def refuse(self, path: str, message: str, near: str = "") -> Any:
        if self.limited and len(self.problems) == limits.PROBLEMS_PER_KEY:
            text = f"more than {limits.PROBLEMS_PER_KEY} faults; the others are not listed"
            self.problems.append(Problem("$", text))
            raise _EnoughError
        self.problems.append(Problem(path, message, near))
        return _REFUSED


def _value(info: mi.Type, value: Any, path: str, run: _Run) -> Any:
    info = plain(info)
    if isinstance(info, mi.Metadata):
        return _formatted(info, value, path, run)
    if isinstance(info, mi.UnionType):
        return _union(info, value, path, run)
    if not accepts(info, value):
        return run.refuse(path, f"must be {describe(info)}, is {_show(value)}")
    if isinstance(info, mi.StructType):
        return _struct(info, value, path, run)
    if isinstance(info, mi.DictType):
        _refuse_repeated(value, path, run)
        if run.limited and value and len(longest := max(value, key=len)) > limits.NAME_CHARACTERS:
            return run.refuse(join(path, longest), f"the key has {len(longest)} characters{_MOST}")
        entries = {k: _value(info.value_type, v, join(path, k), run) for k, v in _present(value)}
        return {key: entry for key, entry in entries.items() if entry is not _REFUSED}
    if isinstance(info, mi.VarTupleType):
        return tuple(_value(info.item_type, v, join(path, i), run) for i, v in enumerate(value))
    if isinstance(info, mi.TupleType):
        if len(value) != len(info.item_types):
            return run.refuse(path, f"must have {len(info.item_types)} elements, has {len(value)}")
        pairs = zip(info.item_types, value, strict=True)
        return tuple(_value(kind, v, join(path, i), run) for i, (kind, v) in enumerate(pairs))
    if isinstance(info, mi.LiteralType) and value not in info.values:
        near = nearest(value, (v for v in info.values if isinstance(v, str)))
        return run.refuse(path, f"must be {describe(info)}, is {_show(value)}", near)
    if isinstance(info, mi.IntType | mi.FloatType):
        return _number(info, value, path, run)
    if run.limited and isinstance(value, str) and len(value) > limits.NAME_CHARACTERS:
        return run.refuse(path, f"has {len(value)} characters{_MOST}")
    if isinstance(info, mi.StrType) and info.pattern and not re.fullmatch(info.pattern, value):
        return run.refuse(path, f"must be {describe(info)}, is {_show(value)}")
    return value


def _present(tree: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in tree.items() if value is not None]


def _union(info: mi.UnionType, value: Any, path: str, run: _Run) -> Any:
    members = [member for member in info.types if not isinstance(member, mi.NoneType)]
    for member in members:
        if accepts(member, value):
            return _value(member, value, path, run)
    wanted = " or ".join(describe(member) for member in members)
    return run.refuse(path, f"must be {wanted}, is {_show(value)}")


def _formatted(info: mi.Metadata, value: Any, path: str, run: _Run) -> Any:
    if not accepts(info, value):
        return run.refuse(path, f"must be {describe(info)}, is {_show(value)}")
    text_format = FORMATS[format_of(info) or ""]
    try:
        parsed = text_format.parse(value)
    except ValueError as error:
        return run.refuse(path, str(error))
    if run.limited and isinstance(parsed, frozenset):
        run.cpus += len(parsed)
        if run.cpus > limits.CPUS_PER_DOCUMENT:
            most = limits.CPUS_PER_DOCUMENT
            return run.refuse(path, f"all lists together have more than {most} CPUs")
    bare = bare_type(info)
    if isinstance(bare, mi.IntType | mi.FloatType):
        return _number(bare, parsed, path, run, text_format.render)
    return parsed


def _number(
    info: mi.IntType | mi.FloatType,
    value: int | float,
    path: str,
    run: _Run,
    render: Callable[[Any], str] = str,
) -> Any:
    if isinstance(info, mi.IntType):
        if value not in _INT64:
            return run.refuse(path, "does not fit into a signed 64-bit integer")
    else:
        try:
            value = float(value)
        except OverflowError:
            return run.refuse(path, "is too large")
        if not math.isfinite(value):
            return run.refuse(path, "must be a finite number")
    broken = (
        (info.ge is not None and value < info.ge)
        or (info.le is not None and value > info.le)
        or (info.gt is not None and value <= info.gt)
        or (info.lt is not None and value >= info.lt)
    )
    if not broken:
        return value
    return run.refuse(path, f"must be {range_text(info, render)}, is {render(value)}")


class _Layout(NamedTuple):
    """The fields of a table. ``folded``: their names by lower case. ``required``: by the name in
    the document, to the name of the field. ``optional_texts``: where ``""`` is absent."""

    fields: Mapping[str, mi.Field]
    folded: Mapping[str, str]
    required: Mapping[str, str]
    optional_texts: frozenset[str]


@lru_cache(maxsize=256)
def _layout(cls: Hashable) -> _Layout:
    info = type_info(cls)
    assert isinstance(info, mi.StructType)
    fields = {field.encode_name: field for field in info.fields}
    return _Layout(
        fields,
        {name.lower(): name for name in fields},
        {name: field.name for name, field in fields.items() if field.required},
        frozenset(name for name, field in fields.items() if _optional_text(field.type)),
    )


def _struct(info: mi.StructType, value: dict[str, Any], path: str, run: _Run) -> Any:
    layout = _layout(info.cls)
    fields = layout.fields
    given: dict[str, tuple[str, Any]] = {}
    _refuse_repeated(value, path, run)
    for key, item in value.items():
        name = key
        if key not in fields:
            name = layout.folded.get(key.lower(), "") if run.fold_case else ""
        if not name:
            if run.strict:
                run.refuse(join(path, key), "unknown key", nearest(key, fields))
        elif name in given and run.strict:
            run.refuse(join(path, key), f"is the same key as {given[name][0]!r}")
        else:
            given[name] = (key, item)
    arguments: dict[str, Any] = {}
    for name, (key, item) in given.items():
        field = fields[name]
        if item is not None and not (item == "" and name in layout.optional_texts):
            found = _value(field.type, item, join(path, key), run)
            if found is not _REFUSED or field.required:
                arguments[field.name] = found
    for name, field_name in layout.required.items():
        if field_name not in arguments:
            arguments[field_name] = run.refuse(join(path, name), "is missing")
    return info.cls(**arguments)


def _refuse_repeated(value: Any, path: str, run: _Run) -> None:
    if run.strict and isinstance(value, RepeatedKeys):
        for key in value.repeated:
            run.refuse(join(path, key), "is given more than once")


def _optional_text(info: mi.Type) -> bool:
    info = plain(info)
    return (
        isinstance(info, mi.UnionType)
        and info.includes_none
        and any(accepts(member, "") for member in info.types)
    )


def accepts(info: mi.Type, value: Any) -> bool:
    """Whether ``value`` is of the right kind, its range aside."""
    info = plain(info)
    if isinstance(info, mi.Metadata):
        numbers = FORMATS[format_of(info) or ""].numbers
        return isinstance(value, str) or (numbers and _is_number(value))
    kind = _KINDS.get(type(info))
    if isinstance(info, mi.FloatType):
        return _is_number(value)
    return (
        kind is None
        or (isinstance(value, kind) and type(value) is not bool)
        or (kind is bool and type(value) is bool)
    )


_KINDS: dict[type[mi.Type], type] = {
    mi.NoneType: type(None),
    mi.BoolType: bool,
    mi.IntType: int,
    mi.StrType: str,
    mi.LiteralType: str,
    mi.StructType: dict,
    mi.DictType: dict,
    mi.VarTupleType: list,
    mi.TupleType: list,
}
_NAMES: dict[type[mi.Type], str] = {
    mi.BoolType: "true or false",
    mi.IntType: "an integer",
    mi.FloatType: "a number",
    mi.StrType: "a string",
    mi.StructType: "an object",
    mi.DictType: "an object",
    mi.VarTupleType: "a list",
    mi.TupleType: "a list",
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def describe(info: mi.Type) -> str:
    """What a field takes, for messages and documentation."""
    info = plain(info)
    if isinstance(info, mi.Metadata):
        text_format, bare = FORMATS[format_of(info) or ""], bare_type(info)
        if isinstance(bare, mi.IntType | mi.FloatType):
            limits = range_text(bare, text_format.render)
            return f"{text_format.what}, {limits}" if limits else text_format.what
        return text_format.what
    if isinstance(info, mi.UnionType):
        return " or ".join(describe(t) for t in info.types if not isinstance(t, mi.NoneType))
    if isinstance(info, mi.LiteralType):
        return "one of " + ", ".join(map(str, info.values))
    if isinstance(info, mi.IntType | mi.FloatType) and (limits := range_text(info)):
        return f"{_NAMES[type(info)]}, {limits}"
    if isinstance(info, mi.StrType) and info.pattern:
        return f"a string that matches {info.pattern}"
    return _NAMES.get(type(info), "any value")


def range_text(info: mi.IntType | mi.FloatType, render: Callable[[Any], str] = str) -> str:
    """``from 0 to 100``, ``at least 1``, or nothing where every value is in range."""
    if info.ge is not None and info.le is not None:
        return f"from {render(info.ge)} to {render(info.le)}"
    limits = (("at least", info.ge), ("above", info.gt), ("at most", info.le), ("below", info.lt))
    return " and ".join(f"{word} {render(limit)}" for word, limit in limits if limit is not None)


def _show(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, str | int | float):
        text = repr(value) if not isinstance(value, int) or abs(value) < 2**64 else "a huge number"
        return text if len(text) <= 60 else f"{text[:57]}..."
    return f"a {type(value).__name__}"
