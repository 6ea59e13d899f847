"""The story, its second act, and half a minute of chaos after them, as a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.whole import chaos, second
from tests.cluster.whole.cluster import whole
from tests.cluster.whole.story import Story, teller
from tests.realkube import node
from tests.realkube.binaries import why_not

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(1800)]
CHAOS_S = 40.0


def test_one_node_from_an_empty_cluster_to_chaos(tmp_path: Path) -> None:
    if reason := why_not() or node.why_not():
        pytest.skip(reason)
    with whole(tmp_path) as made:
        tell = teller()
        story = Story(made, tell)
        story.all()
        second.play(made.plane, second.process_of(made.plane, tmp_path), tell)
        chaos.run(story, CHAOS_S, seed=11)
