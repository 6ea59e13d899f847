"""Figures of quotas for others: what is written to an ElasticQuota, what services answer, and what
Prometheus gets (docs/reference/central.md 4.10, 9.2, 9.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from koord_scheduler.share.quota.quotas import Quotas
from koord_scheduler.share.quota.tree import Share, Tree
from koord_scheduler.share.quota.words import Amounts, quantities_of
from koordlet.protocol.objects.quota import (
    ALLOCATED,
    CHILD_REQUEST,
    GUARANTEED,
    NON_PREEMPTIBLE_REQUEST,
    NON_PREEMPTIBLE_USED,
    REQUEST,
    RUNTIME,
)

USED = "used"


class Status(NamedTuple):
    """``used`` is ``status.used``; ``annotations`` beside it, as text."""

    used: Mapping[str, str]
    annotations: Mapping[str, str]


def figures_of(tree: Tree, share: Share) -> dict[str, Amounts]:
    """Return what the ElasticQuota shall say of itself, by annotation, and under USED what its
    status says."""
    figures: dict[str, Amounts] = {
        USED: share.used,
        RUNTIME: tree.runtime_of(share),
        REQUEST: share.request,
        CHILD_REQUEST: share.child_request,
        NON_PREEMPTIBLE_REQUEST: share.firm_request,
        NON_PREEMPTIBLE_USED: share.firm_used,
    }
    if tree.guarantees:
        figures |= {ALLOCATED: share.allocated, GUARANTEED: share.guaranteed}
    zeros = dict.fromkeys(share.quota.max, 0)
    return {key: {**zeros, **amounts} for key, amounts in figures.items()}


def status_of(figures: Mapping[str, Amounts]) -> Status:
    """Return the figures as the object holds them."""
    texts = {key: _json(amounts) for key, amounts in figures.items() if key != USED}
    return Status(quantities_of(figures[USED]), texts)


def summary_of(quotas: Quotas, tree: Tree, share: Share, *, pods: bool = False) -> dict[str, Any]:
    """The body of ``/quotas/:name``. ``pods``: with each pod that is charged to it."""
    quota = share.quota
    figures: dict[str, Amounts] = {
        "max": quota.max,
        "min": quota.min,
        "autoScaleMin": {**share.min, **share.auto_min},
        "used": share.used,
        "nonPreemptibleUsed": share.firm_used,
        "request": share.request,
        "nonPreemptibleRequest": share.firm_request,
        "sharedWeight": quota.weight,
        "runtime": tree.runtime_of(share),
        "childRequest": share.child_request,
        "allocated": share.allocated,
        "guaranteed": share.guaranteed,
        "selfUsed": share.own_used,
        "selfNonPreemptibleUsed": share.own_firm_used,
        "selfRequest": share.own_request,
        "selfNonPreemptibleRequest": share.own_firm_request,
    }
    found: dict[str, Any] = {
        "name": share.name,
        "parentName": share.parent.name if share.parent is not None else "",
        "isParent": quota.is_parent,
        "runtimeVersion": quotas.version,
        "allowLentResource": share.lends,
        "tree": tree.id,
        **{name: quantities_of(amounts) for name, amounts in figures.items()},
    }
    if pods:
        found["podCache"] = {
            pod.key: {
                "isAssigned": claim is not None,
                "resource": quantities_of(quotas.member(pod.cls).request),
            }
            for pod, claim in quotas.pods_of(share.name)
        }
    return found


def summaries(quotas: Quotas, tree: str = "", *, pods: bool = False) -> dict[str, Any]:
    """The body of ``/quotas``: by name; empty where there is no such tree."""
    found = quotas.trees().get(tree)
    if found is None:
        return {}
    return {
        name: summary_of(quotas, found, share, pods=pods)
        for name, share in sorted(found.shares.items())
    }


METRIC_LABELS = ("name", "resource", "tree", "is_parent", "parent", "field")


def spec_metrics(quotas: Quotas) -> Iterator[tuple[tuple[str, ...], float]]:
    """Of ``elastic_quota_spec``: CPU in milli-cores, as the reference gives it."""
    for _, share, labels in _shares(quotas):
        quota = share.quota
        yield from _rows(labels, {"min": quota.min, "max": quota.max, "weight": quota.weight})


def status_metrics(quotas: Quotas) -> Iterator[tuple[tuple[str, ...], float]]:
    """Of ``elastic_quota_status``: CPU in milli-cores, as the reference gives it."""
    for tree, share, labels in _shares(quotas):
        figures: dict[str, Amounts] = {
            "runtime": tree.runtime_of(share),
            "used": share.used,
            "request": share.request,
            "child-request": share.child_request,
            "non-preemptible-request": share.firm_request,
            "non-preemptible-used": share.firm_used,
        }
        if tree.guarantees:
            figures |= {"allocated": share.allocated, "guaranteed": share.guaranteed}
        if share.quota.is_root:
            figures["unschedulable-resource"] = share.quota.unschedulable
        yield from _rows(labels, figures)


def _shares(quotas: Quotas) -> Iterator[tuple[Tree, Share, tuple[str, str, str, str]]]:
    for tree in quotas.trees().values():
        for name, share in sorted(tree.shares.items()):
            if share is not tree.root:
                parent = share.quota.parent
                flag = "true" if share.quota.is_parent else "false"
                yield tree, share, (name, tree.id, flag, parent)


def _rows(
    labels: tuple[str, str, str, str], figures: Mapping[str, Amounts]
) -> Iterator[tuple[tuple[str, ...], float]]:
    name, tree, is_parent, parent = labels
    for field, amounts in figures.items():
        for resource, amount in sorted(amounts.items()):
            yield (name, resource, tree, is_parent, parent, field), float(amount)


def _json(amounts: Amounts) -> str:
    return msgspec.json.encode(quantities_of(amounts)).decode()
