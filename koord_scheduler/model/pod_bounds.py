"""How much of what pods require is read. Pods that require more are refused in words."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from koord_scheduler.model import pod_wire as wire
from koordlet.protocol.selector import LabelSelector

T = TypeVar("T")
MOST_EXPRESSIONS = 1024
"""Of all terms about nodes, or about other pods, together."""
MOST_VALUES = 8192
"""In all these expressions."""
MOST_TERMS = 64
"""Of a list in a pod: volumes, tolerations, terms, and names in a term."""


class Size(NamedTuple):
    expressions: int = 0
    values: int = 0

    @property
    def fits(self) -> bool:
        return self.expressions <= MOST_EXPRESSIONS and self.values <= MOST_VALUES


def _sum(sizes: Iterable[Size]) -> Size:
    found = tuple(sizes)
    return Size(sum(each.expressions for each in found), sum(each.values for each in found))


def _size_of_selector(selector: LabelSelector | None) -> Size:
    if selector is None:
        return Size()
    labels, expressions = len(selector.match_labels or {}), selector.match_expressions
    values = sum(len(each.values) for each in expressions)
    return Size(labels + len(expressions), labels + values)


def size_of_pod_term(term: wire.PodTerm) -> Size:
    own = len(term.match_label_keys) + len(term.mismatch_label_keys)
    selectors = (term.label_selector, term.namespace_selector)
    return _sum((Size(own, own), *map(_size_of_selector, selectors)))


def size_of_node_term(term: wire.Term) -> Size:
    each = (*term.match_expressions, *term.match_fields)
    return Size(len(each), sum(len(one.values) for one in each))


def cut(terms: Iterable[tuple[T, Size]], size: Size) -> tuple[tuple[T, ...], Size]:
    """The first of what is preferred that fit beside ``size``, which is given with theirs."""
    found: list[T] = []
    for term, own in itertools.islice(terms, MOST_TERMS):
        more = _sum((size, own))
        if not more.fits:
            break
        found.append(term)
        size = more
    return tuple(found), size


def required_of_pods(spec: wire.PodPlacement) -> Size:
    affinity = spec.affinity or wire.Affinity()
    there = (affinity.pod_affinity, affinity.pod_anti_affinity)
    terms = (term for each in there if each is not None for term in each.required)
    spread = (_size_of_selector(each.label_selector) for each in spec.topology_spread_constraints)
    return _sum((*map(size_of_pod_term, terms), *spread))


def required_of_nodes(spec: wire.PodPlacement) -> Size:
    nodes = (spec.affinity or wire.Affinity()).node_affinity
    terms = nodes.required.node_selector_terms if nodes is not None and nodes.required else ()
    selector = len(spec.node_selector)
    return _sum((Size(selector, selector), *map(size_of_node_term, terms)))


def beyond(spec: wire.PodPlacement) -> tuple[str, ...]:
    """What would change its meaning, were the rest left out; what is preferred is cut."""
    many = [
        f"more than {MOST_TERMS} {words}" for words, there in _required(spec) if there > MOST_TERMS
    ]
    pods = "required pod affinity, anti-affinity and topology spread constraints"
    for words, size in (
        (pods, required_of_pods(spec)),
        ("node selector and required node affinity", required_of_nodes(spec)),
    ):
        if not size.fits:
            most = f"{MOST_EXPRESSIONS} expressions or {MOST_VALUES} values"
            many.append(f"more than {most} in {words}")
    return tuple(many)


def _required(spec: wire.PodPlacement) -> Iterator[tuple[str, int]]:
    affinity = spec.affinity or wire.Affinity()
    nodes = affinity.node_affinity
    spread = spec.topology_spread_constraints
    yield "tolerations", len(spec.tolerations)
    yield "topology spread constraints", len(spread)
    keys = [each.match_label_keys for each in spread]
    yield "label keys in a topology spread constraint", _most(keys)
    if nodes is not None and nodes.required is not None:
        yield "terms of required node affinity", len(nodes.required.node_selector_terms)
    together, apart = affinity.pod_affinity, affinity.pod_anti_affinity
    for name, pods in (("affinity", together), ("anti-affinity", apart)):
        terms = pods.required if pods is not None else ()
        yield f"terms of required pod {name}", len(terms)
        where = f"in a term of required pod {name}"
        yield f"namespaces {where}", _most([each.namespaces for each in terms])
        keys = [each.match_label_keys for each in terms]
        keys += [each.mismatch_label_keys for each in terms]
        yield f"label keys {where}", _most(keys)


def _most(lists: list[tuple[str, ...]]) -> int:
    return max(map(len, lists), default=0)
