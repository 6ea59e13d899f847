"""How much of what pods require is read. Pods that require more are refused in words."""

from __future__ import annotations

from collections.abc import Iterator

from koord_scheduler.model import pod_wire as wire

MOST_TERMS = 64
"""Of a list in a pod: volumes, tolerations, terms, and names in a term."""


def beyond(spec: wire.PodPlacement) -> tuple[str, ...]:
    """What would change its meaning, were the rest left out; what is preferred is cut."""
    return tuple(
        f"more than {MOST_TERMS} {words}" for words, there in _required(spec) if there > MOST_TERMS
    )


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
