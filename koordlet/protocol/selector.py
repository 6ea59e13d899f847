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
