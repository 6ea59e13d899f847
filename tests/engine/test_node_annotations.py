"""A bad annotation of the node that replaces a good one, from the file and from anybody else."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import pytest

from koordlet.config.errors import ConfigErrors
from koordlet.config.load import Loaded
from tests.daemon.world import World

RATIO = "node.koordinator.sh/cpu-normalization-ratio"
POOLS = "node.koordinator.sh/cpu-shared-pools"
GOOD = f"""
[node.annotations]
"{RATIO}" = "1.25"
"{POOLS}" = '[{{"socket":0,"node":0,"cpuset":"1-3"}}]'
"""


def with_annotations(loaded: Loaded, annotations: Mapping[str, str]) -> Loaded:
    """As a cluster would tell them, which nobody checks before."""
    node = msgspec.structs.replace(loaded.config.node, annotations=annotations)
    config = msgspec.structs.replace(loaded.config, node=node)
    return msgspec.structs.replace(loaded, config=config)


def test_the_last_good_value_stays_and_the_fault_is_shown(
    make_world: Callable[..., World],
) -> None:
    world = make_world(GOOD)
    world.start()
    engine, good = world.engine, world.engine.node()
    assert (good.cpus.normalization_ratio, len(good.cpus.share_pools or ())) == (1.25, 1)
    for _ in range(2):
        engine.reconfigure(with_annotations(engine.loaded, {RATIO: "-1", POOLS: "[{"}))
        assert engine.node() == good
        told = {fault.path.partition(" ")[0]: fault.message for fault in engine.faults()}
        assert set(told) == {RATIO, POOLS}
        assert all("kept: the value before it stays in force" in each for each in told.values())
        shown = {each.path.partition(" ")[0] for each in world.views.status().refused_inputs}
        assert shown >= {RATIO, POOLS}
    engine.reconfigure(with_annotations(engine.loaded, {RATIO: "1.5"}))
    assert (engine.node().cpus.normalization_ratio, engine.node().cpus.share_pools) == (1.5, None)
    assert engine.faults() == ()


def test_a_file_with_a_bad_one_is_kept_out_as_a_whole(make_world: Callable[..., World]) -> None:
    world = make_world(GOOD)
    world.start()
    good = world.engine.node()
    with pytest.raises(ConfigErrors, match=r"node\.annotations"):
        world.reload(GOOD.replace('"1.25"', '"0"') + "[daemon]\ntick_seconds = 2\n")
    assert world.engine.node() == good
    assert world.engine.loaded.config.daemon.tick_seconds == 1
