"""Which nodes, namespaces and pods a plugin is about, and the durations of its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from koord_scheduler.balance.world import Resident
from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.cluster.nodes import Node
from koordlet.protocol.duration import parse_duration
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.selector import LabelSelector, Requirement, matches, selector_problems

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]


class Namespaces(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of both."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class PodSelector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str = ""
    selector: LabelSelector | None = None


def namespace_allowed(namespaces: Namespaces | None, namespace: str) -> bool:
    if namespaces is None:
        return True
    if namespaces.include:
        return namespace in namespaces.include
    return namespace not in namespaces.exclude


def pod_selected(selectors: Sequence[PodSelector], resident: Resident) -> bool:
    """Any of them; all pods where there is none. One without a selector selects nothing."""
    labels = resident.pod.labels
    return not selectors or any(
        each.selector is not None and matches(each.selector, labels) for each in selectors
    )


def nodes_selected(selector: LabelSelector | None, nodes: Iterable[Node]) -> list[Node]:
    return [each for each in nodes if selector is None or matches(selector, each.labels)]


def read_selector(plugin: str, where: str, text: str) -> LabelSelector | None:
    """Of text as ``kubectl --selector`` takes it: ``a=b,c!=d,e,!f``; None for an empty one. Raises
    ArgumentError."""
    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        key, sign, value = part.partition("!=") if "!=" in part else part.partition("=")
        if sign:
            values = (value.removeprefix("=").strip(),)
            operator: Operator = "NotIn" if sign == "!=" else "In"
            found.append(Requirement(key=key.strip(), operator=operator, values=values))
        else:
            operator = "DoesNotExist" if part.startswith("!") else "Exists"
            found.append(Requirement(key=part.removeprefix("!").strip(), operator=operator))
    selector = LabelSelector(match_expressions=tuple(found)) if found else None
    check_selector(plugin, where, selector)
    return selector


def check_namespaces(plugin: str, where: str, namespaces: Namespaces | None) -> None:
    """Raises ArgumentError."""
    if namespaces is not None and namespaces.include and namespaces.exclude:
        raise ArgumentError(f"{plugin}: {where}: give include or exclude, not both")


def check_selector(plugin: str, where: str, selector: LabelSelector | None) -> None:
    """Raises ArgumentError."""
    for problem in selector_problems(selector, where) if selector is not None else ():
        raise ArgumentError(f"{plugin}: {problem}")


def check_pod_selectors(plugin: str, selectors: Sequence[PodSelector]) -> None:
    """Raises ArgumentError."""
    for i, each in enumerate(selectors):
        check_selector(plugin, f"podSelectors[{i}].selector", each.selector)


def duration_s(plugin: str, where: str, text: str) -> float:
    """Raises ArgumentError."""
    try:
        return parse_duration(text)
    except ProtocolError as error:
        raise ArgumentError(f"{plugin}: {where}: {error}") from None
