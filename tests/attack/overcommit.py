"""The API servers of `apiserver.py` before the manager as a process: its memory and its requests
have a bound, every node keeps its NodeSLO, and a change reaches them soon afterwards."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from tests.attack.apiserver import Subject
from tests.attack.attack import Attack, Trial
from tests.attack.central import NODES, Scheduler, play_before, stays_alive
from tests.attack.tenants import Stage
from tests.companion.daemon.cluster import CONFIG
from tests.fakekube import FakeKube
from tests.fakekube.selectors import Selector

_SPACE = "koordinator-system"


class Manager(Subject):
    most_requests = 300
    right_s = 120.0
    spare_bytes = Scheduler.spare_bytes

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.process)
        self._stage = stage
        stage.make("configmaps", {"metadata": {"namespace": _SPACE, "name": CONFIG}})

    def _thresholds(self) -> list[int | None]:
        store, slos = self._stage.fake.store, self._stage.fake.resource("nodeslos")
        of_node = {each["metadata"]["name"]: each for each in store.all(slos, "", Selector())}
        return [
            each["spec"]["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"]
            if (each := of_node.get(f"n{i}"))
            else None
            for i in range(NODES)
        ]

    async def holds(self, kind: str) -> None:
        await stays_alive(kind, self._stage, "manager")
        assert None not in self._thresholds(), f"{kind}: a node has lost its NodeSLO"

    async def change(self, kube: FakeKube, number: int) -> Callable[[], Awaitable[object]]:
        percent = 40 + number % 50
        strategy = {"enable": True, "cpuSuppressThresholdPercent": percent}
        text = json.dumps({"clusterStrategy": strategy})
        maps, key = kube.resource("configmaps"), (_SPACE, CONFIG)
        kube.store.merge(maps, key, {"data": {"resource-threshold-config": text}})
        kube.store.on_write()

        async def lacks() -> object:
            seen = self._thresholds()
            return None if seen == [percent] * NODES else seen

        return lacks


def play(trial: Trial) -> None:
    play_before(trial, "manager", Manager)


ATTACK = Attack("overcommit", play)
