"""Why a pod has no node: every reason against every node, and what would have to change.

The figures are those of this instant, made anew with all plugins on all nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from koord_scheduler.model.cluster.columns import PODS, Ints, Rows
from koord_scheduler.model.cluster.pods import Pod, PodClass
from koord_scheduler.model.cluster.verdict import FITS, REASONS, Codes, Refusal
from koord_scheduler.plan.engine import Engine
from koordlet.protocol import resources

MOST_NODES = 10
"""Names of nodes that are listed with a reason."""
_MOST_CHARACTERS = 1024
_FIT = "NodeResourcesFit"


class Against(NamedTuple):
    """``nodes``: how many it holds for, others or not. ``only``: how many would let the pod in if
    it went; ``opens`` names some of them, the first rows."""

    plugin: str
    text: str
    unresolvable: bool
    nodes: int
    only: int
    opens: tuple[str, ...]


class Change(NamedTuple):
    """What makes the pod fit on ``node``, in words."""

    node: str
    words: str


class Ranked(NamedTuple):
    """A node where the pod fits, with its score by plugin, weighted."""

    node: str
    score: int
    by_plugin: Mapping[str, int]


class FailedNodes(NamedTuple):
    """``nodeFailedDetails`` of docs/reference/central.md 9.5 and 9.6."""

    failed_plugin: str
    reason: str
    preempt_might_help: bool
    nodes: tuple[str, ...]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """``fits``: on how many of ``nodes`` the pod fits now; ``best`` are the first of them.
    ``refused``: why it is refused whatever the nodes are, empty where it is not. ``against``: the
    reasons, those against most nodes first. ``changes``: the smallest first."""

    pod: str
    nodes: int
    fits: int
    refused: str = ""
    against: tuple[Against, ...] = ()
    changes: tuple[Change, ...] = ()
    best: tuple[Ranked, ...] = ()

    def text(self) -> str:
        """The smallest change in one short sentence, for the condition; empty without one."""
        if self.fits or not self.changes:
            return ""
        change = self.changes[0]
        return f"It would fit on {change.node} {change.words}."[:_MOST_CHARACTERS]


def explain(engine: Engine, pod: Pod) -> Explanation:
    """What every plugin says of every node about this pod. Changes nothing. Raises PluginError."""
    cluster, cls = engine.cluster, pod.cls
    rows = cluster.rows()
    refused = engine.refused(pod)
    codes = dict(engine.evaluator.every(cls, rows))
    _ask_allocators(engine, pod, rows, codes)
    failing = np.zeros(len(rows), np.int64)
    for why in codes.values():
        failing += why != FITS
    return Explanation(
        pod=pod.key,
        nodes=len(rows),
        fits=int((failing == 0).sum()),
        refused=refused.words if refused is not None else "",
        against=_against(engine, rows, codes, failing),
        changes=_changes(engine, cls, rows, codes, failing),
        best=ranking(engine, cls, MOST_NODES),
    )


def ranking(engine: Engine, cls: PodClass, most: int) -> tuple[Ranked, ...]:
    """The best nodes for such a pod now, best first."""
    judged = engine.evaluator.judge(cls)
    rows = judged.rows
    if not len(rows):
        return ()
    order = np.argsort(-judged.scores, kind="stable")[:most]
    tables = engine.evaluator.scores(cls, rows)
    found = []
    for at in order.tolist():
        by_plugin = {name: int(score[at]) for name, score in tables.items()}
        found.append(Ranked(_name(engine, rows[at]), int(judged.scores[at]), by_plugin))
    return tuple(found)


def failed_nodes(engine: Engine, pod: Pod, most: int = MOST_NODES) -> tuple[FailedNodes, ...]:
    """By the first reason against each node, at most ``most`` names for each."""
    why = engine.evaluator.judge(pod.cls, None, engine.veto(pod)).why
    groups: list[FailedNodes] = []
    for code in np.unique(why[why > FITS]).tolist():
        found = REASONS[code]
        names = tuple(_name(engine, row) for row in np.flatnonzero(why == code)[:most])
        groups.append(FailedNodes(found.plugin, found.text, not found.unresolvable, names))
    return tuple(sorted(groups))


def condition(failure_text: str, explanation: Explanation | None, preemption: str = "") -> str:
    """The message of ``PodScheduled``: what kube-scheduler says, then the smallest change."""
    parts = [failure_text]
    if preemption:
        parts.append(f"preemption: {preemption}")
    if explanation is not None and explanation.text():
        parts.append(explanation.text())
    return " ".join(parts)[:_MOST_CHARACTERS]


def _ask_allocators(engine: Engine, pod: Pod, rows: Rows, codes: dict[str, Codes]) -> None:
    """Where all plugins agree an allocator may still refuse: a few of these nodes are asked."""
    failing = np.zeros(len(rows), np.int64)
    for why in codes.values():
        failing += why != FITS
    for at in np.flatnonzero(failing == 0)[:MOST_NODES]:
        chosen = engine.choose(pod, int(rows[at]))
        if isinstance(chosen, Refusal):
            plugin = REASONS[chosen.why].plugin
            why = codes.setdefault(plugin, np.zeros(len(rows), np.int16)).copy()
            why[at] = chosen.why
            codes[plugin] = why


def _against(
    engine: Engine, rows: Rows, codes: Mapping[str, Codes], failing: Ints
) -> tuple[Against, ...]:
    found: list[Against] = []
    for why in codes.values():
        for code in np.unique(why[why != FITS]).tolist():
            here = why == code
            alone = rows[here & (failing == 1)]
            each = REASONS[code]
            opens = tuple(_name(engine, row) for row in alone[:MOST_NODES])
            found.append(
                Against(
                    each.plugin, each.text, each.unresolvable, int(here.sum()), len(alone), opens
                )
            )
    return tuple(sorted(found, key=lambda each: (-each.nodes, each.plugin, each.text)))


def _changes(
    engine: Engine, cls: PodClass, rows: Rows, codes: Mapping[str, Codes], failing: Ints
) -> tuple[Change, ...]:
    """One for room, the one that asks for least; one for each other reason that stands alone
    somewhere; or else the node with the fewest reasons."""
    if not len(rows) or not failing.all():
        return ()
    changes: list[Change] = []
    fit = codes.get(_FIT)
    if fit is not None:
        short = np.flatnonzero((fit != FITS) & (failing == 1))
        least = _least(engine, cls, rows[short])
        if least is not None:
            changes.append(least)
    others: list[tuple[int, Change]] = []
    for plugin, why in codes.items():
        if plugin == _FIT:
            continue
        alone = why[failing == 1]
        for code in np.unique(alone[alone != FITS]).tolist():
            where = np.flatnonzero((why == code) & (failing == 1))
            words = f"without: {REASONS[code].text}"
            others.append((len(where), Change(_name(engine, rows[where[0]]), words)))
    changes += [change for _, change in sorted(others, key=lambda each: (-each[0], each[1]))]
    if not changes:
        at = int(np.argmin(failing))
        texts = (REASONS[int(why[at])].text for why in codes.values() if why[at] != FITS)
        changes.append(Change(_name(engine, rows[at]), f"without: {', '.join(texts)}"))
    return tuple(changes)


def _least(engine: Engine, cls: PodClass, rows: Rows) -> Change | None:
    """The node that lacks the smallest part of what the pod asks for."""
    if not len(rows):
        return None
    cluster = engine.cluster
    ask = cluster.vector(cls)
    columns = np.flatnonzero(ask)
    short = np.maximum(
        ask[columns] - (cluster.allocatable[rows] - cluster.requested[rows])[:, columns], 0
    )
    part = (short / ask[columns]).max(axis=1)
    at = int(np.argmin(part))
    lacking = [
        (cluster.columns.names[column], int(amount))
        for column, amount in zip(columns.tolist(), short[at].tolist(), strict=True)
        if amount > 0
    ]
    if not lacking:  # what no node offers has no column
        return None
    whole = any(cluster.columns.index[name] == PODS for name, _ in lacking)
    words = " and ".join(
        "one pod less there" if name == "pods" else f"{_amount(name, amount)} less {name}"
        for name, amount in lacking
    )
    return Change(_name(engine, rows[at]), f"with {words}" if whole else f"asking for {words}")


def _amount(name: str, amount: int) -> str:
    """CPU in milli-cores, whole MiB of memory, else plain."""
    if name == resources.CPU:
        return f"{amount}m"
    if name in (resources.MEMORY, "ephemeral-storage") and amount >= 1 << 20:
        return f"{-(-amount // (1 << 20))}Mi"
    return str(amount)


def _name(engine: Engine, row: int) -> str:
    node = engine.cluster.nodes[row]
    return node.name if node is not None else ""


def table(ranked: Iterable[Ranked]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(head, lines) of the nodes with a column for each plugin, as ``/debug/flags/s`` logs them."""
    ranked = tuple(ranked)
    plugins = sorted({name for each in ranked for name in each.by_plugin})
    lines = [
        (
            str(place),
            each.node,
            str(each.score),
            *(str(each.by_plugin.get(name, 0)) for name in plugins),
        )
        for place, each in enumerate(ranked)
    ]
    return ("#", "Node", "Score", *plugins), lines
