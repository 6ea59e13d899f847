"""Kubernetes label selectors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from koordlet.protocol.errors import Problem, join
from koordlet.protocol.slo import Section


class Requirement(Section, frozen=True):
    key: str
    """Name of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """Relation of the label to the values: In, NotIn, Exists or DoesNotExist."""
    values: tuple[str, ...] = ()
    """Values of the label; none with Exists and DoesNotExist."""


class LabelSelector(Section, frozen=True):
    """All requirements must hold; an empty selector matches everything."""

    match_labels: dict[str, str] | None = None
    """Labels that must have exactly these values."""
    match_expressions: tuple[Requirement, ...] = ()
    """Requirements that must all hold, beside matchLabels."""


_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_PREFIX = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII
)


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether a node with ``labels`` is selected."""
    for key, value in (selector.match_labels or {}).items():
        if labels.get(key) != value:
            return False
    return all(_holds(requirement, labels) for requirement in selector.match_expressions)


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None


class Matcher:
    """A selector made ready to be asked about many labels: each key is looked at once, its values
    are sets, and labels without any of its keys cost one look."""

    __slots__ = ("_absent", "_asked", "_keys")

    def __init__(self, selector: LabelSelector) -> None:
        asked: dict[str, tuple[bool, frozenset[str] | None, frozenset[str]]] = {}
        pairs = (selector.match_labels or {}).items()
        equal = (Requirement(key=key, operator="In", values=(value,)) for key, value in pairs)
        for each in (*equal, *selector.match_expressions):
            absent, allowed, denied = asked.get(each.key, (True, None, frozenset[str]()))
            values = frozenset(each.values)
            match each.operator:
                case "In":
                    absent, allowed = False, values if allowed is None else allowed & values
                case "NotIn":
                    denied |= values
                case "Exists":
                    absent = False
                case "DoesNotExist":
                    allowed = frozenset()
            asked[each.key] = (absent, allowed, denied)
        self._asked = tuple((key, *rest) for key, rest in asked.items())
        self._keys = frozenset(asked)
        self._absent = all(absent for absent, _, _ in asked.values())

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return the same as the function of this name."""
        if len(labels) < len(self._asked) and self._keys.isdisjoint(labels):
            return self._absent
        for key, absent, allowed, denied in self._asked:
            value = labels.get(key)
            if value is None:
                if not absent:
                    return False
            elif value in denied or (allowed is not None and value not in allowed):
                return False
        return True


def selector_problems(selector: LabelSelector, path: str) -> Iterator[Problem]:
    """What Kubernetes would refuse: bad keys and values, operators with the wrong values."""
    for key, value in (selector.match_labels or {}).items():
        where = join(join(path, "matchLabels"), key)
        yield from _key_problems(key, where)
        yield from _value_problems(value, where)
    for index, requirement in enumerate(selector.match_expressions):
        where = join(join(path, "matchExpressions"), index)
        yield from _key_problems(requirement.key, join(where, "key"))
        for value in requirement.values:
            yield from _value_problems(value, join(where, "values"))
        if (requirement.operator in ("In", "NotIn")) != bool(requirement.values):
            need = "none" if requirement.values else "at least one value"
            yield Problem(join(where, "values"), f"{requirement.operator} takes {need}")


def is_subdomain(text: str) -> bool:
    """Return whether it is a DNS name as objects of Kubernetes may have."""
    return _PREFIX.fullmatch(text) is not None


def is_label_name(text: str) -> bool:
    return not any(_key_problems(text, ""))


def _key_problems(key: str, path: str) -> Iterator[Problem]:
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix)):
        yield Problem(path, f"{key[:64]!r} is not a label name")


def _value_problems(value: str, path: str) -> Iterator[Problem]:
    if value and not _NAME.fullmatch(value):
        yield Problem(path, f"{value[:64]!r} is not a label value")
