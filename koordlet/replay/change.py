"""Another policy: keys of the configuration with other values."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from koordlet.inputs.model import Configured
from koordlet.protocol.decode import decode_partly, nearest
from koordlet.protocol.errors import Problem, ProtocolError
from koordlet.protocol.merge import overlay
from koordlet.protocol.slo import NodeSLOSpec
from koordlet.protocol.validate import validate
from koordlet.replay.parts import OURS, Table

SLO = "slo"
_TABLES = (*OURS, "plugins")


class Change(msgspec.Struct, frozen=True):
    """``slo``: keys of the NodeSLO that replace those in force. ``options``: of parts, by the key
    of their table, such as ``strategies.cpu-evict``."""

    slo: NodeSLOSpec | None = None
    options: dict[str, dict[str, Any]] = {}

    def of_slo(self, slo: NodeSLOSpec | None) -> NodeSLOSpec | None:
        """Where there was no NodeSLO, this is all of it. Raises ProtocolError where a value does
        not go with one that was in force."""
        changed = overlay(slo, self.slo)
        problems = tuple(validate(changed, SLO)) if self.slo is not None else ()
        if problems:
            raise ProtocolError(problems)
        return changed

    def of_parts(self, table: Table, parts: tuple[Configured, ...]) -> tuple[Configured, ...]:
        """With the options of this change; parts that it switches on come at their place."""
        found = {each.name: self._of_part(table, each) for each in parts}
        for name, part in OURS[table].items():
            if name not in found and f"{table}.{name}" in self.options:
                options = msgspec.to_builtins(part.options)
                found[name] = self._of_part(table, Configured(name, options))
        ranks = {name: rank for rank, name in enumerate(OURS[table])}
        ordered = sorted(found.values(), key=lambda each: ranks.get(each.name, len(ranks)))
        return tuple(each for each in ordered if each.options.get("enable", True))

    def _of_part(self, table: Table, part: Configured) -> Configured:
        keys = (f"{table}.{part.name}", f"plugins.{part.name}")
        changed = next((self.options[key] for key in keys if key in self.options), None)
        if changed is None:
            return part
        return msgspec.structs.replace(part, options={**part.options, **changed})


def parsed(text: str) -> tuple[str, Any]:
    """Key and value of ``KEY=VALUE``; the value as in TOML, a bare word is text. Raises
    ProtocolError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ProtocolError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value_of(value)


def value_of(text: str) -> Any:
    """As in TOML; what is not is text."""
    if "\n" in text:  # it would be more than a value
        return text
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except (tomllib.TOMLDecodeError, ValueError):
        return text.strip()


def change_of(settings: Iterable[tuple[str, Any]]) -> Change:
    """Raises ProtocolError with every fault: keys that are not there, values out of range. What a
    value has to do with those in force is only known over a trace (``Change.of_slo``)."""
    tree: dict[str, Any] = {}
    options: dict[str, dict[str, Any]] = {}
    problems: list[Problem] = []
    for key, value in settings:
        table, _, rest = key.partition(".")
        if table == SLO and rest:
            problems += _put(tree, rest.split("."), value, key)
        elif table in _TABLES and rest.count(".") == 1:
            name, _, option = rest.partition(".")
            options.setdefault(f"{table}.{name}", {})[option] = value
        else:
            text = "is no key that a decision goes by: slo.*, strategies.NAME.*, hooks.NAME.*"
            problems.append(Problem(key, text))
    slo = None
    if tree:
        slo, wrong = decode_partly(NodeSLOSpec, tree, strict=True, path=SLO)
        problems += wrong
        if not wrong:
            problems += validate(slo, SLO)
    for path, values in options.items():
        problems += _option_problems(path, values)
    if problems:
        raise ProtocolError(tuple(problems))
    return Change(slo, options)


def _put(tree: dict[str, Any], keys: Sequence[str], value: Any, path: str) -> Iterator[Problem]:
    for key in keys[:-1]:
        below = tree.setdefault(key, {})
        if not isinstance(below, dict):
            yield Problem(path, "two of the keys contradict each other")
            return
        tree = below
    tree[keys[-1]] = value


def _option_problems(path: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    table, _, name = path.partition(".")
    parts = {str(each): found for each, found in OURS.items()}.get(table)
    if parts is None:
        return  # a part of another package says so when it is made
    part = parts.get(name)
    if part is None:
        yield Problem(path, f"there is no part {name!r}", nearest(name, parts))
        return
    options, wrong = decode_partly(
        type(part.options),
        {**msgspec.to_builtins(part.options), **values},
        strict=True,
        fold_case=False,
        path=path,
    )
    yield from wrong
    if not wrong:
        for each in part.with_options(options).problems():
            yield Problem(f"{path}.{each.path}", each.message, each.nearest)
