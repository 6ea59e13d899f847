"""Terms of API pods about nodes and about other pods, to those of ``PodClass``."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koord_scheduler.model import pod_wire as wire
from koord_scheduler.model.cluster import pods
from koord_scheduler.model.pod_bounds import MOST_TERMS
from koordlet.protocol.selector import LabelSelector, Requirement


def node_terms(required: wire.Terms | None) -> tuple[pods.NodeTerm, ...] | None:
    if required is None:
        return None
    return tuple(node_term(each) for each in required.node_selector_terms[:MOST_TERMS])


def node_term(term: wire.Term) -> pods.NodeTerm:
    labels = (pods.NodeRequirement(e.key, e.operator, e.values) for e in term.match_expressions)
    fields = (pods.NodeRequirement(e.key, e.operator, e.values, True) for e in term.match_fields)
    return (*labels, *fields)


def spread_constraint(each: wire.Spread, labels: Mapping[str, str]) -> pods.SpreadConstraint:
    return pods.SpreadConstraint(
        topology_key=each.topology_key,
        max_skew=max(each.max_skew, 1),
        hard=each.when_unsatisfiable != "ScheduleAnyway",
        selector=_with_keys(each.label_selector, labels, each.match_label_keys),
        min_domains=each.min_domains or 1,
        honor_affinity=each.node_affinity_policy != "Ignore",
        honor_taints=each.node_taints_policy == "Honor",
    )


def pod_terms(
    terms: tuple[wire.PodTerm, ...], namespace: str, labels: Mapping[str, str]
) -> tuple[pods.PodTerm, ...]:
    return tuple(_pod_term(each, namespace, labels) for each in terms[:MOST_TERMS])


def preferred_terms(
    terms: tuple[wire.PreferredPodTerm, ...], namespace: str, labels: Mapping[str, str]
) -> tuple[pods.PodTerm, ...]:
    return tuple(
        _pod_term(each.pod_affinity_term, namespace, labels)._replace(weight=each.weight)
        for each in terms
    )


def _pod_term(term: wire.PodTerm, namespace: str, labels: Mapping[str, str]) -> pods.PodTerm:
    """Without namespaces and without a selector of them it means the pod's own."""
    names = frozenset(term.namespaces[:MOST_TERMS])
    if not names and term.namespace_selector is None:
        names = frozenset((namespace,))
    selector = _with_keys(term.label_selector, labels, term.match_label_keys)
    selector = _with_keys(selector, labels, term.mismatch_label_keys, operator="NotIn")
    return pods.PodTerm(term.topology_key, selector, names, term.namespace_selector)


def _with_keys(
    selector: LabelSelector | None,
    labels: Mapping[str, str],
    names: tuple[str, ...],
    operator: str = "In",
) -> LabelSelector | None:
    """``selector`` and the pod's own values of ``names`` (matchLabelKeys, mismatchLabelKeys)."""
    if selector is None:
        return None
    own = tuple(
        Requirement(key=name, operator=operator, values=(labels[name],))  # type: ignore[arg-type]
        for name in names[:MOST_TERMS]
        if name in labels
    )
    if not own:
        return selector
    return msgspec.structs.replace(selector, match_expressions=(*selector.match_expressions, *own))
