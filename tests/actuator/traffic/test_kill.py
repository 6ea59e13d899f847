"""Traffic classes half made: the daemon is killed at any write."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from koordlet.decision.plan import Result
from koordlet.kernel.net.marks import NetFilter
from tests.actuator.traffic.test_writer import EVERYTHING, Node, plan
from tests.kernel.net.pairs import pair

pytestmark = pytest.mark.kernel


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with pair() as net:
        yield Node(net, tmp_path)


KILLED = """
import os, signal, sys
sys.path.insert(0, {root!r})
from contextlib import closing
from koordlet.actuator.traffic.devices import Devices
from koordlet.actuator.traffic.writer import Wanted, apply
from koordlet.kernel.net.tc import TrafficControl
from koordlet.kernel.net.marks import NetFilter
from tests.actuator.traffic.test_writer import plan

left = {calls}

def counted(function):
    def call(*arguments, **options):
        global left
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return function(*arguments, **options)
    return call

for name in ("add_root", "set_class", "add_match", "add_link", "add_ingress", "redirect"):
    setattr(TrafficControl, name, counted(getattr(TrafficControl, name)))
for name in ("make", "change"):
    setattr(NetFilter, name, counted(getattr(NetFilter, name)))
with closing(TrafficControl()) as control, closing(NetFilter()) as tables:
    wanted = Wanted(plan(), features=frozenset({features!r}))
    apply(control, tables, wanted, Devices({path!r}, "boot"), time=1.0)
"""


@pytest.mark.parametrize("calls", [0, 1, 5, 9, 12, 13, 14, 23, 25, 26, 27, 28])
def test_killed_at_any_write(node: Node, calls: int) -> None:
    """What a daemon left that was killed, restore takes away, and the next daemon completes."""
    before = node.state()
    root = str(Path(__file__).parents[3])
    code = KILLED.format(root=root, calls=calls, features=set(node.features), path=node.path)
    command = [sys.executable, "-c", code]
    for finish in (node.restore, lambda: node.apply(plan())):
        ended = node.net.node.run(lambda: subprocess.run(command, check=False).returncode)
        assert ended == -9, "the call was never reached"
        finish()
        if finish == node.restore:
            assert node.state() == before
            assert node.net.node.run(_no_marks)
    assert node.results(plan()) == dict.fromkeys(EVERYTHING, Result.IN_FORCE)


def _no_marks() -> bool:
    with closing(NetFilter()) as tables:
        return tables.read() is None
