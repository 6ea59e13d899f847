"""``python -m tests.attack.member KUBECONFIG DIRECTORY``: a node of a cluster on the fake kernel,
in a process of its own, so that its memory can be measured.

It writes into ``DIRECTORY/seen`` what the NodeSLO says that is in force, and how many pods it knows
of the API server.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from koordlet.kube import trouble
from tests.cluster.joined import config, joined_by
from tests.daemon.world import World

LOOK_S = 0.05
STEADY_S = 1.0
"""So long a watch must last before short ones are forgotten: one attack follows the other."""


class Seen(msgspec.Struct, frozen=True):
    percent: int | None = None
    pods: int = 0


def seen_in(directory: Path) -> Seen:
    try:
        return msgspec.json.decode((directory / "seen").read_bytes(), type=Seen)
    except FileNotFoundError:
        return Seen()


async def main(kubeconfig: Path, directory: Path) -> None:
    trouble.STEADY_S = STEADY_S
    world = World(directory, config(kubeconfig, "kubelet = false"))
    world.start()
    membership = joined_by(world)
    membership.begin()
    task = asyncio.create_task(membership.run())
    before = None
    while not task.done():
        await asyncio.sleep(LOOK_S)
        world.host.advance(LOOK_S)
        world.answer()
        found = world.engine.loaded.slo.resource_used_threshold_with_be
        percent = found.cpu_suppress_threshold_percent if found is not None else None
        seen = Seen(percent, len(world.parts.listed["api"].pods()))
        if seen != before:
            (directory / "new").write_bytes(msgspec.json.encode(seen))
            (directory / "new").rename(directory / "seen")
            before = seen
    task.result()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
