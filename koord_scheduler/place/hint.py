"""SchedulingHint: nodes that somebody named for a pod (docs/reference/central.md 8.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from koord_scheduler.model.cluster.arguments import Args, check_range, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Rows
from koord_scheduler.model.cluster.pods import PodClass
from koord_scheduler.model.cluster.verdict import Normalize, Verdict, reason
from koord_scheduler.model.texts import decoded

NAME = "SchedulingHint"
KEYS = (
    "internal.scheduling.koordinator.sh/scheduling-hint",
    "scheduling.koordinator.sh/scheduling-hint",
)


class HintArgs(Args, frozen=True, kw_only=True):
    max_hint_nodes: int = 100


class Hint(msgspec.Struct, frozen=True, rename="camel"):
    """``preferred_node_names`` are tried before all others. What ``extensions`` replay is passed
    over: allocations are made anew."""

    node_names: tuple[str, ...] = ()
    preferred_node_names: tuple[str, ...] = ()


_decoder = msgspec.json.Decoder(Hint)


def hint_of(pod: PodClass) -> Hint | None:
    """None without one, and where it cannot be read."""
    text = next((text for key in KEYS if (text := pod.annotations.get(key))), None)
    return decoded(_decoder, text)


class SchedulingHint:
    """Its score is 100 for preferred nodes, with a weight that no other score reaches."""

    name = NAME
    local = True
    normalize = Normalize.NO

    def __init__(self, args: HintArgs) -> None:
        self._most = args.max_hint_nodes

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return hint_of(pod) is not None

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        hint = hint_of(pod) or Hint()
        why = np.zeros(len(rows), np.int16)
        if hint.node_names:
            text = "node(s) are not among those of the scheduling hint"
            why[~_named(cluster, hint.node_names, rows)] = reason(NAME, text, unresolvable=True)
        preferred = _named(cluster, hint.preferred_node_names[: self._most], rows)
        return Verdict(why, preferred * np.int64(100))


def _named(cluster: Cluster, names: tuple[str, ...], rows: Rows) -> Any:
    found = [cluster.row[name] for name in names if name in cluster.row]
    return np.isin(rows, np.array(found, np.intp))


def make(args: Mapping[str, Any]) -> SchedulingHint:
    found = read_args(NAME, HintArgs, args)
    check_range(NAME, "maxHintNodes", found.max_hint_nodes, 1, None)
    return SchedulingHint(found)
