"""NightShift: a balance plugin that evicts batch pods from nodes that are kept for the day.

Nodes with the label are emptied of pods of class batch and free while the hour of the day (UTC) is
one of the working hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koord_scheduler.balance.plugins import BALANCE, Plugin
from koord_scheduler.balance.round import Round
from koord_scheduler.model.cluster.arguments import Args, ArgumentError, read_args
from koordlet.protocol.qos import PriorityClass

NAME = "NightShift"
_CHEAP = (PriorityClass.BATCH, PriorityClass.FREE)


class NightShiftArgs(Args, frozen=True):
    """Working hours are ``first_hour`` up to, not with, ``last_hour``."""

    label: str = "example.com/day-node"
    first_hour: int = 8
    last_hour: int = 18


class NightShift:
    name = NAME

    def __init__(self, args: NightShiftArgs) -> None:
        self._args = args

    def run(self, round_: Round) -> None:
        args = self._args
        hour = int(round_.world.now_s // 3600) % 24
        if not args.first_hour <= hour < args.last_hour:
            return
        for node in round_.nodes:
            if args.label not in node.labels:
                continue
            for each in round_.world.active_on(node.name):
                if each.pod.cls.priority_class in _CHEAP and round_.may_evict(each):
                    round_.evict(each, NAME, f"node is kept for the day until {args.last_hour}:00")


def make(args: Mapping[str, Any]) -> NightShift:
    found = read_args(NAME, NightShiftArgs, args)
    if not 0 <= found.first_hour < found.last_hour <= 24:
        raise ArgumentError(f"{NAME}: firstHour and lastHour must be 0 to 24, the first one less")
    return NightShift(found)


PLUGIN = Plugin(
    NAME,
    (BALANCE,),
    "empties day nodes of batch pods in working hours",
    "koord_scheduler_example.night_shift:make",
)
