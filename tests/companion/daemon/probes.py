"""Controllers for tests of the process."""

from __future__ import annotations

import asyncio
from typing import Any

from koord_scheduler.daemon.controller import Context
from koord_scheduler.kube.shapes import CONFIG_MAPS, NODE_SLOS
from koord_scheduler.kube.watches import Watched

HERE = "tests.companion.daemon.probes:"


class Probe:
    """A controller that says when it runs."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.maps: Watched[Any] = context.watches.of(CONFIG_MAPS)
        self.running = False
        self.runs = 0

    async def run(self) -> None:
        assert self.maps.synced
        self.running = True
        self.runs += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.running = False


MADE: list[Probe] = []


def make_probe(context: Context) -> Probe:
    MADE.append(Probe(context))
    return MADE[-1]


def make_needy(context: Context) -> Probe:
    """It also needs what a bare server does not have."""
    context.watches.of(NODE_SLOS)
    return make_probe(context)


def make_broken(context: Context) -> Probe:
    class Broken(Probe):
        async def run(self) -> None:
            raise RuntimeError("a defect")

    return Broken(context)
