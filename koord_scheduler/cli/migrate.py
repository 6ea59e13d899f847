"""``koord-scheduler migrate --dry-run``: what a round of the descheduler would do."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from koord_scheduler.balance.ledger import Ledger
from koord_scheduler.balance.round import Outcome, run_round
from koord_scheduler.balance.simulation import simulation
from koord_scheduler.balance.world import Resident, World
from koord_scheduler.cli.cluster import cluster_of
from koord_scheduler.cli.errors import BadInputError, WrongUseError
from koord_scheduler.cli.output import clean, columns, emit
from koord_scheduler.cli.seen import read_documents
from koord_scheduler.daemon.descheduler.desk import LedgerBook, load
from koord_scheduler.daemon.descheduler.feed import usage_of
from koord_scheduler.daemon.descheduler.workloads import Workloads
from koord_scheduler.kube.listing import list_all, singles
from koord_scheduler.kube.migration_shapes import DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS
from koord_scheduler.kube.residents import PODS
from koord_scheduler.kube.scheduling.shapes import NODES
from koord_scheduler.kube.shapes import NODE_METRICS
from koord_scheduler.model.cluster.arguments import ArgumentError
from koordlet.kube.answers import decoded
from koordlet.kube.client import Client
from koordlet.kube.errors import RefusedError, UnusableError
from koordlet.kube.kinds import Kind
from koordlet.kube.mirror import Key, key_of

_KINDS: tuple[Kind[Any], ...] = (
    NODES,
    PODS,
    NODE_METRICS,
    REPLICA_SETS,
    DEPLOYMENTS,
    STATEFUL_SETS,
)
_DEADLINE_S = 60.0
Objects = Mapping[str, Mapping[Key, Any]]


class Row(msgspec.Struct, frozen=True):
    """``next``: the node where the pod would go by the simulation; empty where it finds none."""

    pod: str
    node: str
    next: str
    plugin: str
    reason: str


class Answer(msgspec.Struct, frozen=True):
    """``refused``: reason -> how many pods."""

    evictions: list[Row]
    refused: dict[str, int]
    error: str = ""


def main(args: argparse.Namespace) -> int:
    if not args.dry_run:
        raise WrongUseError("migrate looks only: give --dry-run; to move pods run the descheduler")
    try:
        configured = load(args.descheduler_config)
    except ArgumentError as error:
        raise BadInputError(str(error)) from None
    if not any(each.deschedule or each.balance for each in configured.profiles):
        raise WrongUseError("--descheduler-config enables no deschedule and no balance plugin")
    objects = _of_files(args.files) if args.files else asyncio.run(_of_cluster(args))
    world = _world(objects, saved=bool(args.files))
    node_of = simulation(world)
    ledger = Ledger(node_of, args=configured.configuration.eviction_ledger)
    outcome = run_round(
        world,
        configured.profiles,
        configured.configuration.limits,
        selector=configured.configuration.node_selector,
        ledger=LedgerBook(ledger, "descheduler"),
    )
    going = (each.resident.pod for each in outcome.requests)
    answer = _answer(outcome, {pod.key: node_of(pod) or "" for pod in going})
    emit(answer, args.output, lambda: _lines(answer))
    return 0


def _answer(outcome: Outcome, targets: Mapping[str, str]) -> Answer:
    rows = [
        Row(pod.key, pod.node, targets[pod.key], each.plugin, each.reason)
        for each in outcome.requests
        for pod in (each.resident.pod,)
    ]
    return Answer(rows, dict(Counter(each.why for each in outcome.refused)), outcome.error)


def _lines(answer: Answer) -> Iterable[str]:
    rows = ((e.pod, e.node, e.next, e.plugin, e.reason) for e in answer.evictions)
    yield from columns(("POD", "FROM", "TO", "PLUGIN", "WHY"), rows)
    for why, count in sorted(answer.refused.items()):
        yield f"refused {count}: {clean(why)}"
    if answer.error:
        yield f"ended early: {clean(answer.error)}"


def _of_files(paths: Iterable[str]) -> Objects:
    found: dict[str, dict[Key, Any]] = {kind.name: {} for kind in _KINDS}
    kinds = {kind.name: kind for kind in _KINDS}
    try:
        for path in paths:
            for document in singles(read_documents(path)):
                kind = kinds.get(document.get("kind", ""))
                if kind is not None:
                    item = decoded(kind, msgspec.json.encode(document))
                    found[kind.name][key_of(item)] = item
    except UnusableError as error:
        raise BadInputError(str(error)) from None
    return found


def _say(text: str) -> None:
    print(f"koord-scheduler: {clean(text)}", file=sys.stderr)


async def _of_cluster(args: argparse.Namespace) -> Objects:
    async with Client(cluster_of(args), agent="koord-scheduler", deadline_s=_DEADLINE_S) as client:
        found: dict[str, dict[Key, Any]] = {}
        for kind in _KINDS:
            try:
                items = await list_all(client, kind, _say)
            except RefusedError as error:
                if not error.missing:
                    raise
                items = ()
            found[kind.name] = {key_of(each): each for each in items}
        return found


def _world(objects: Objects, *, saved: bool) -> World:
    residents: dict[str, list[Resident]] = {}
    for each in objects[PODS.name].values():
        residents.setdefault(each.pod.node, []).append(each.resident)
    usage = {
        key.name: found
        for key, each in objects[NODE_METRICS.name].items()
        if (found := usage_of(each)) is not None
    }
    workloads = Workloads(
        lambda: objects[REPLICA_SETS.name],
        lambda: objects[DEPLOYMENTS.name],
        lambda: objects[STATEFUL_SETS.name],
        time.monotonic,
    )
    # Saved objects are looked at as of their last report.
    newest_s = max((each.updated_s for each in usage.values()), default=0.0)
    return World(
        now_s=min(newest_s, time.time()) if saved and newest_s else time.time(),
        nodes={key.name: each.node for key, each in objects[NODES.name].items()},
        residents={name: tuple(found) for name, found in residents.items()},
        usage=usage,
        workload=workloads.find,
    )
