"""What observe mode keeps in memory."""

from __future__ import annotations

from pathlib import Path

from koordlet.decision.plan import Plan, Result
from koordlet.decision.resource import Resource
from tests.actuator.world import World, plan


def test_what_is_gone_is_told_once_and_forgotten(world: World) -> None:
    file = ("be/pod/box", Resource.CPU_QUOTA_US)
    world.apply(plan("be", (*file, 50_000)))
    world.start(observe=True)
    for root in world.cgroups.directories("be/pod/box"):
        world.host.rmdir(root)
    before = Path(world.journal_path).read_bytes()
    assert [each.result for each in world.apply(Plan("be"))] == [Result.GONE]
    assert world.apply() == ()
    assert not world.actuator.owned()
    # Whoever may write again finds it there, and looks for himself.
    assert Path(world.journal_path).read_bytes() == before
