"""A short form of both acts for CI: one node from an empty cluster to limits that hold, then a gang
and shares of a GPU, placed by a scheduler that is killed between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.whole import second
from tests.cluster.whole.cluster import whole
from tests.cluster.whole.story import Story, teller
from tests.realkube import node
from tests.realkube.binaries import why_not

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.slow, pytest.mark.timeout(480)]


def test_one_node_and_a_scheduler(tmp_path: Path) -> None:
    if reason := why_not() or node.why_not():
        pytest.skip(reason)
    with whole(tmp_path) as made:
        tell = teller()
        story = Story(made, tell)
        story.components()
        story.capacity()
        story.webhook()
        story.limits()
        second.play_short(made.plane, second.process_of(made.plane, tmp_path), tell)
