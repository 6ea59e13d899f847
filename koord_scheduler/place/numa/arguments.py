"""Arguments of NodeNUMAResource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from koord_scheduler.model.cluster.arguments import Args, read_args
from koord_scheduler.place.fit import ResourceWeight, check_weights, evenly
from koord_scheduler.place.numa.types import NAME
from koordlet.protocol.resources import CPU, MEMORY


class Strategy(msgspec.Struct, frozen=True):
    type: Literal["LeastAllocated", "MostAllocated"] = "LeastAllocated"
    resources: tuple[ResourceWeight, ...] = evenly(CPU, MEMORY)


class NumaArgs(Args, frozen=True, kw_only=True):
    """Of ``numa_scoring_strategy`` the type counts alone, as in the reference."""

    default_cpu_bind_policy: Literal["FullPCPUs", "SpreadByPCPUs"] = msgspec.field(
        default="FullPCPUs", name="defaultCPUBindPolicy"
    )
    scoring_strategy: Strategy = Strategy()
    numa_scoring_strategy: Strategy = Strategy()


def numa_args(args: Mapping[str, Any]) -> NumaArgs:
    """Raises ArgumentError."""
    found = read_args(NAME, NumaArgs, args)
    for where, strategy in (
        ("scoringStrategy", found.scoring_strategy),
        ("numaScoringStrategy", found.numa_scoring_strategy),
    ):
        check_weights(NAME, f"{where}.resources", strategy.resources)
    return found
