"""Nodes that are filled in thought: first fit over free requests
(docs/reference/central.md 10.14)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from koord_scheduler.balance.fit import why_not
from koord_scheduler.balance.world import Amounts, Resident, World
from koord_scheduler.model.cluster.nodes import Node


class Packing:
    """What was promised to each node; ``place`` promises."""

    def __init__(self, world: World, targets: Sequence[Node]) -> None:
        self._world, self._targets = world, targets
        self._taken: dict[str, dict[str, int]] = {}

    def place(self, resident: Resident) -> str | None:
        """The first target that fits, or None."""
        for node in self._targets:
            if node.name == resident.pod.node:
                continue
            taken = self._taken.get(node.name)
            if why_not(self._world, resident, node, taken=taken) is None:
                self._take(node.name, resident, 1)
                return node.name
        return None

    def give_back(self, resident: Resident, node: str) -> None:
        self._take(node, resident, -1)

    def place_all(self, residents: Iterable[Resident]) -> bool:
        """All or none."""
        placed: list[tuple[Resident, str]] = []
        for each in residents:
            node = self.place(each)
            if node is None:
                for one, where in placed:
                    self.give_back(one, where)
                return False
            placed.append((each, node))
        return True

    def _take(self, node: str, resident: Resident, sign: int) -> None:
        taken = self._taken.setdefault(node, {"pods": 0})
        taken["pods"] += sign
        for name, amount in resident.requests.items():
            taken[name] = taken.get(name, 0) + sign * amount


def by_request(resident: Resident) -> tuple[int, int, str, str]:
    """Small ones first."""
    asked: Amounts = resident.requests
    return asked.get("cpu", 0), asked.get("memory", 0), resident.namespace, resident.name
