"""``koord-scheduler quota``: who may use how much, who lent it, and what would change that."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import msgspec

from koord_scheduler.admission.pods import check_pod, labels_of, requests_of
from koord_scheduler.admission.words import AdmissionError
from koord_scheduler.cli.cluster import cluster_of
from koord_scheduler.cli.errors import BadInputError, WrongUseError
from koord_scheduler.cli.output import amount, clean, columns, emit
from koord_scheduler.cli.seen import read_documents
from koord_scheduler.kube.quota_feed import quota_read
from koord_scheduler.kube.quota_shapes import QUOTAS
from koord_scheduler.model.amounts import amount_of
from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.model.reading import instant_s, pod_key
from koord_scheduler.share.quota.answers import Change, NoQuotaError, invoice, what_if
from koord_scheduler.share.quota.quotas import Quotas, make
from koord_scheduler.share.quota.tree import APART, Share, Tree
from koord_scheduler.share.quota.views import summaries
from koord_scheduler.share.quota.words import (
    GATE_FIELDS,
    Amounts,
    amounts_of,
    exceeding,
    quantities_of,
    quota_gates,
)
from koordlet.kube.answers import decoded, tree_of
from koordlet.kube.client import Client
from koordlet.kube.errors import RefusedError, UnusableError
from koordlet.kube.kinds import PODS, Kind
from koordlet.kube.objects import Object
from koordlet.kube.paging import items
from koordlet.protocol import keys
from koordlet.protocol.resources import CPU

_NODES = Kind("", "v1", "Node", "nodes", False, Object)
_UNLIMITED = (2**63 - 1) // 2000
"""What profiles write as the maximum of a tree's root; more is no limit either."""
_DEADLINE_S = 60.0
_LABELS = (keys.QUOTA_NAME.name, keys.PREEMPTIBLE.name)
_TREE = ("QUOTA", "RESOURCE", ">MIN", ">MAX", ">USED", ">REQUEST", ">RUNTIME", "NOTE")


def tree(args: argparse.Namespace) -> int:
    """Each quota with its figures, parents first. 1 where a quota has no place in its tree."""
    quotas = quotas_of(args)
    trees = quotas.trees()
    found = {
        "trees": {name: summaries(quotas, name) for name in sorted(trees)},
        "problems": dict(quotas.problems),
    }
    emit(found, args.output, lambda: columns(_TREE, _rows(quotas)))
    return 1 if quotas.problems else 0


def lent(args: argparse.Namespace) -> int:
    """Who lent whom how much, and which quota must give something back."""
    found = invoice(quotas_of(args))
    header = ("LENDER", "BORROWER", "RESOURCE", ">AMOUNT", "BELOW")
    rows = [
        *(
            (each.lender or "(nobody's)", each.borrower, each.resource,
             _shown(each.resource, each.amount), each.parent)
            for each in found.loans
        ),
        *(
            ("(to be given back)", each.quota, each.resource,
             _shown(each.resource, each.amount), "")
            for each in found.debts
        ),
    ]  # fmt: skip
    made = {
        "loans": [each._asdict() for each in found.loans],
        "debts": [each._asdict() for each in found.debts],
    }
    emit(made, args.output, lambda: columns(header, rows) if rows else ["nobody lent anything"])
    return 0


def changed(args: argparse.Namespace) -> int:
    """What another ``min`` or ``max`` would change; with ``--exit-code`` 1 where pods would have to
    go."""
    least, most = _amounts("--min", args.least), _amounts("--max", args.most)
    if least is None and most is None:
        raise WrongUseError("give --min or --max, such as --max cpu=20,memory=80Gi")
    try:
        found = what_if(quotas_of(args), {args.name: Change(least, most)})
    except NoQuotaError as error:
        raise BadInputError(str(error)) from None
    trees = []
    for each in found.outcomes:
        made = msgspec.to_builtins(each)
        for name in ("runtime", "runtime_then", "used"):
            made[name] = quantities_of(made[name])
        trees.append(made)
    header = ("QUOTA", "RESOURCE", ">USED", ">RUNTIME", ">THEN", ">WAITING LET IN", ">EVICTED")
    rows = [
        (
            each.quota, name, _shown(name, each.used.get(name, 0)),
            _shown(name, each.runtime.get(name, 0)), _shown(name, each.runtime_then.get(name, 0)),
            f"{each.waiting} -> {each.waiting_then}", str(len(each.evicted)),
        )
        for each in found.outcomes
        for name in sorted(each.runtime_then.keys() | each.runtime.keys())
    ]  # fmt: skip

    def lines() -> Iterator[str]:
        yield from columns(header, rows)
        for each in found.outcomes:
            for key in each.evicted:
                yield clean(f"would go: {key} of quota {each.quota}")
        yield from map(clean, found.notes)

    emit({"quotas": trees, "notes": list(found.notes)}, args.output, lines)
    return 1 if args.exit_code and any(each.evicted for each in found.outcomes) else 0


# What is shown.


def _rows(quotas: Quotas) -> Iterator[tuple[str, ...]]:
    several = len(quotas.trees()) > 1
    for name, each in sorted(quotas.trees().items()):
        if several:
            yield (f"tree {name or '(default)'}", *[""] * 7)
        each.refresh()
        for share in sorted(each.root.children.values(), key=lambda one: one.name):
            yield from _rows_of(each, share, 0)
    for name, problem in sorted(quotas.problems.items()):
        yield (name, *[""] * 6, problem)


def _rows_of(tree: Tree, share: Share, depth: int) -> Iterator[tuple[str, ...]]:
    runtime = tree.runtime_of(share)
    over = exceeding(share.used, runtime)
    for at, name in enumerate(sorted(share.quota.max)):
        notes = ["uses too much"] if name in over else []
        own = max(share.auto_min.get(name, 0), share.guaranteed.get(name, 0))
        if share.name not in APART and runtime.get(name, 0) != own:
            more = runtime.get(name, 0) - own
            notes.append(f"{'borrows' if more > 0 else 'lends'} {_shown(name, abs(more))}")
        yield (
            "  " * depth + share.name if at == 0 else "", name,
            _shown(name, share.quota.min.get(name, 0)), _shown(name, share.quota.max[name]),
            _shown(name, share.used.get(name, 0)), _shown(name, share.request.get(name, 0)),
            _shown(name, runtime.get(name, 0)), ", ".join(notes),
        )  # fmt: skip
    for child in share.children.values():
        yield from _rows_of(tree, child, depth + 1)


def _shown(name: str, value: int) -> str:
    return "no limit" if value >= _UNLIMITED else amount(name, value)


# What is looked at.


def quotas_of(args: argparse.Namespace) -> Quotas:
    """Of files, or of the API server. Raises BadInputError, WrongUseError and KubeError."""
    quotas, cluster = _empty(args), Cluster()
    quotas.follow(cluster)
    reader = _Reader(quotas, cluster)
    if args.files:
        for path in args.files:
            for document in _single(read_documents(path)):
                reader.take(str(document.get("kind")), document, path)
    else:
        asyncio.run(_from_cluster(args, reader))
    return quotas


def _empty(args: argparse.Namespace) -> Quotas:
    switched: dict[str, bool] = {}
    for pair in filter(None, (each.strip() for each in args.feature_gates.split(","))):
        name, _, value = pair.partition("=")
        if name not in GATE_FIELDS or value not in ("true", "false"):
            known = ", ".join(GATE_FIELDS)
            raise WrongUseError(f"--feature-gates {pair}: NAME=true or =false, NAME of {known}")
        switched[name] = value == "true"
    given: Any = read_documents(args.plugin_args)[:1] if args.plugin_args else [{}]
    if not given or not isinstance(given[0], dict):
        raise BadInputError(f"{args.plugin_args}: holds no arguments of ElasticQuota")
    try:
        return make(given[0], quota_gates(switched))
    except ArgumentError as error:
        raise BadInputError(f"{args.plugin_args}: {error}") from None


class _Reader:
    """Objects as the API server writes them into quotas and a cluster. Pods count by class."""

    def __init__(self, quotas: Quotas, cluster: Cluster) -> None:
        self._quotas, self._cluster = quotas, cluster
        self._classes: dict[tuple[object, ...], PodClass] = {}

    def take(self, kind: str, document: Any, where: str) -> None:
        """Raises BadInputError."""
        try:
            if kind == QUOTAS.name:
                item = decoded(QUOTAS, msgspec.json.encode(document))
                self._quotas.set_quota(quota_read(item))
            elif kind == _NODES.name:
                given = (document.get("status") or {}).get("allocatable") or {}
                name = str(document["metadata"]["name"])
                self._cluster.set_node(Node(name=name, allocatable=amounts_of(given)))
            elif kind == PODS.name:
                check_pod(document)
                self._pod(document)
        except (UnusableError, AdmissionError, KeyError, TypeError, AttributeError) as error:
            raise BadInputError(f"{where}: {kind} cannot be read: {error}") from None

    def _pod(self, document: Any) -> None:
        meta, spec, status = document["metadata"], document["spec"], document.get("status") or {}
        if status.get("phase") in ("Succeeded", "Failed"):
            return
        namespace = str(meta.get("namespace") or "default")
        labels = {name: text for name, text in labels_of(document).items() if name in _LABELS}
        requests = {
            name: each.milli if name == CPU else each.value
            for name, each in requests_of(document).items()
        }
        overhead = {
            name: amount_of(each, name) or 0 for name, each in (spec.get("overhead") or {}).items()
        }
        priority = spec.get("priority") or 0
        same = (
            namespace, tuple(sorted(labels.items())), tuple(requests.items()),
            tuple(overhead.items()), priority,
        )  # fmt: skip
        cls = self._classes.get(same)
        if cls is None:
            cls = self._classes[same] = PodClass(
                number=len(self._classes), namespace=namespace, labels=labels, requests=requests,
                overhead=overhead, priority=priority,
            )  # fmt: skip
        pod = Pod(
            key=pod_key(namespace, str(meta["name"])), uid=str(meta.get("uid") or ""), cls=cls,
            created_s=instant_s(meta.get("creationTimestamp")) or 0.0,
            terminating=bool(meta.get("deletionTimestamp")),
        )  # fmt: skip
        self._quotas.wait(pod)
        if spec.get("nodeName"):
            since_s = instant_s(status.get("startTime")) or pod.created_s
            self._cluster.add(Claim(pod, str(spec["nodeName"]), since_s))


async def _from_cluster(args: argparse.Namespace, reader: _Reader) -> None:
    async with Client(cluster_of(args), agent="koord-scheduler", deadline_s=_DEADLINE_S) as client:
        kinds: tuple[Kind[Any], ...] = (_NODES, QUOTAS, PODS)
        for kind in kinds:
            async for document in _listed(client, kind):
                reader.take(kind.name, document, "the API server")


async def _listed(client: Client, kind: Kind[Any]) -> AsyncIterator[Any]:
    """As the server writes them; nothing where it does not have the kind."""
    try:
        async for raw in items(client, kind):
            try:
                yield tree_of(raw)
            except UnusableError as error:
                print(f"koord-scheduler: passed over: {clean(str(error))}", file=sys.stderr)
    except RefusedError as error:
        if not error.missing:
            raise


def _single(documents: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for document in documents:
        if isinstance(document, dict):
            if isinstance(document.get("items"), list):
                yield from _single(document["items"])
            else:
                yield document


def _amounts(option: str, text: str) -> Amounts | None:
    """Of ``cpu=10,memory=20Gi``; None where nothing is given. Raises WrongUseError."""
    if not text:
        return None
    given: dict[str, str] = {}
    for pair in text.split(","):
        name, sign, value = pair.strip().partition("=")
        if not (name and sign) or amount_of(value, name) is None:
            raise WrongUseError(f"{option} {pair!r}: write RESOURCE=QUANTITY, such as memory=20Gi")
        given[name] = value
    return amounts_of(given)
