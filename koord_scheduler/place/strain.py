"""NodeStrain: nodes whose koordlet sees services suffer.

A NodeMetric shows averages of minutes. koordlet says at once, in an annotation of the node, that
services are throttled, that pressure is high or that best-effort work disturbs them; within one
report such a node gets less work, and no best effort.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from koord_scheduler.model.arrivals import Arrivals
from koord_scheduler.model.cluster.arguments import Args, ArgumentError, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Rows
from koord_scheduler.model.cluster.nodes import Slot
from koord_scheduler.model.cluster.pods import PodClass
from koord_scheduler.model.cluster.verdict import Normalize, Verdict, reason
from koord_scheduler.model.reading import instant_s
from koord_scheduler.model.texts import decoded
from koordlet.protocol.qos import QoSClass

NAME = "NodeStrain"
ANNOTATION = "node.koordinator.sh/strain"
"""Of the node's NodeResourceTopology."""


class StrainArgs(Args, frozen=True, kw_only=True):
    """``expiration_seconds``: how long what koordlet said counts; ``penalty``: what each kind of
    strain takes of a score of 100."""

    expiration_seconds: int = 120
    penalty: int = 50
    refuse_best_effort: bool = True


class Strain(msgspec.Struct, frozen=True):
    """``kinds`` by name (``cpuThrottled``, ``cpuPressure``, ``memoryShort``, ``interference``);
    ``since_s``: when koordlet wrote them, Unix time."""

    kinds: tuple[str, ...]
    since_s: float


STRAIN: Slot[Strain] = Slot("strain")


class _Annotation(msgspec.Struct, frozen=True):
    kinds: tuple[str, ...] = ()
    time: str = ""


_decoder = msgspec.json.Decoder(_Annotation)


def read_strain(annotations: Mapping[str, str]) -> Strain | None:
    """None where there is none, or none that can be read."""
    found = decoded(_decoder, annotations.get(ANNOTATION))
    if found is None:
        return None
    since_s = instant_s(found.time)
    return Strain(found.kinds, since_s) if found.kinds and since_s is not None else None


class NodeStrain:
    name = NAME
    local = True
    normalize = Normalize.NO

    def __init__(self, args: StrainArgs) -> None:
        self.args = args
        self._arrivals = Arrivals()
        self._counted: dict[int, float] = {}
        """Row -> until when its strain counts, of those that were judged to be under strain."""

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return True

    def tick(self, cluster: Cluster) -> None:
        """Touches the rows whose strain no longer counts."""
        over = [row for row, until_s in self._counted.items() if until_s <= cluster.now_s]
        for row in over:
            del self._counted[row]
            cluster.touch(row)

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        why = np.zeros(len(rows), np.int16)
        score = np.full(len(rows), 100, np.int64)
        refuses = self.args.refuse_best_effort and pod.qos is QoSClass.BE and not pod.daemon
        known = cluster.all(STRAIN)
        for i, row in enumerate(rows.tolist() if known else ()):
            strain = cluster.get(STRAIN, row)
            if strain is None:
                continue
            since_s = self._arrivals.at(row, strain.since_s, cluster.now_s)
            until_s = (since_s or 0.0) + self.args.expiration_seconds
            if until_s <= cluster.now_s:
                continue
            self._counted[row] = until_s
            score[i] = max(100 - self.args.penalty * len(strain.kinds), 0)
            if refuses:
                kinds = ", ".join(sorted(strain.kinds))[:64]
                why[i] = reason(NAME, f"node(s) are under strain: {kinds}")
        return Verdict(why, score)


def make(args: Mapping[str, Any]) -> NodeStrain:
    found = read_args(NAME, StrainArgs, args)
    if found.expiration_seconds <= 0 or not 0 <= found.penalty <= 100:
        raise ArgumentError(f"{NAME}: expirationSeconds must be positive, penalty 0 to 100")
    return NodeStrain(found)
