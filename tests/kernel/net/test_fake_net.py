"""The fake of traffic control answers as the real kernel does: the same calls on both."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from koordlet_fakefs.net import Net

from koordlet.kernel.net.filters import DESTINATION, GONE, SOURCE, Match
from koordlet.kernel.net.marks import Marks, NetFilter, SocketMark
from koordlet.kernel.net.tc import HtbClass, TrafficControl
from tests.kernel.net.pairs import Pair, features, pair

pytestmark = pytest.mark.kernel
DEVICE = "v0"


@pytest.fixture
def net() -> Iterator[Pair]:
    with pair() as made:
        features(made.node, "tc.htb", "tc.ifb", "nft.priority", "nft.socket-cgroupv2")
        yield made


def play(control: Any, tables: Any) -> list[object]:
    """What each call answers, or which error it raises."""
    told: list[object] = []

    def ask(call: Callable[..., Any], *arguments: object) -> Any:
        try:
            found = call(*arguments)
        except OSError as error:
            found = errno.errorcode[error.errno or 0]
        told.append((call.__name__, found))
        return found

    def look() -> None:
        for link in sorted(control.links().values(), key=lambda link: link.name):
            if link.name not in (DEVICE, "koord7"):
                continue
            for side in (SOURCE, DESTINATION):
                tree = control.tree(link.index, side)
                matches = sorted((each.address, each.minor) for each in tree.matches)
                told.append((link.name, link.kind, side, dict(tree.classes), matches))
            found = [each for each in control.qdiscs() if each.index == link.index]
            told.append(sorted((q.is_ours, q.ingress, q.kind if q.ingress else "") for q in found))

    index = control.links()[DEVICE].index
    for work in (
        *(lambda: ask(control.remove_root, index), lambda: ask(control.add_root, index, 2)),
        lambda: ask(control.add_root, index, 2),
        lambda: ask(control.set_class, index, HtbClass(1, 0, 10**6, 10**6)),
        lambda: ask(control.set_class, index, HtbClass(2, 1, 10**5, 10**6, 3)),
        lambda: ask(control.set_class, index, HtbClass(2, 0, 10**5, 10**6, 1)),
        lambda: ask(control.add_match, index, SOURCE, Match("10.0.0.7", 2)),
        lambda: ask(control.add_match, index, DESTINATION, Match("fd00::7", 2)),
        *(lambda: ask(control.remove_class, index, 1), lambda: ask(control.remove_class, index, 2)),
        lambda: ask(control.remove_match, index, control.tree(index, SOURCE).matches[0]),
        lambda: ask(control.remove_match, index, control.tree(index, DESTINATION).matches[0]),
        *(lambda: ask(control.remove_class, index, 2), lambda: ask(control.remove_class, index, 2)),
        *(lambda: ask(control.remove_root, index), lambda: ask(control.remove_root, index)),
    ):
        work()
        look()
    ifb = control.add_link("koord7")
    told.append(isinstance(ask(control.add_link, "koord7"), str))
    ask(control.redirect, index, ifb)
    for _ in range(2):
        ask(control.add_ingress, index)
    told.append(control.redirects(index))
    control.redirect(index, ifb)
    told.append(control.redirects(index) == [ifb])
    look()
    ask(control.remove_link, ifb)
    told.append(control.redirects(index) == [GONE])
    ask(control.remove_redirects, index, GONE)
    told.append(control.redirects(index))
    look()
    for _ in range(2):
        ask(control.remove_ingress, index)
    ask(control.remove_link, ifb)

    steps = [Marks({"10.0.0.7": 3, "fd00::7": 4}), Marks({"10.0.0.7": 4}, (SocketMark(1, 9, 4),))]
    ask(tables.remove)
    told.append(tables.read())
    for _ in range(2):
        ask(tables.make)
    found = Marks({})
    for step in steps:
        tables.change(step, found)
        found = tables.read()
        told.append(found)
    ask(tables.change, Marks({}), Marks({"10.0.0.9": 3}))
    told.append(tables.read() == found)
    for _ in range(2):
        ask(tables.remove)
    return told


def test_the_fake_answers_as_the_kernel_does(net: Pair) -> None:
    def real() -> list[object]:
        with closing(TrafficControl()) as control, closing(NetFilter()) as tables:
            return play(control, tables)

    fake = Net()
    fake.add(DEVICE, "veth")
    for here, there in zip(play(*fake.traffic()), net.node.run(real), strict=True):
        assert here == there
