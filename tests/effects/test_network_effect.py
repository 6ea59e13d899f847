"""What traffic classes do for applications, in namespaces of the test's own.

At the rates of a link that this machine can fill, emulated or not. More of the classes by
themselves, at fixed rates: tests/actuator/traffic/test_effect.py.
"""

from __future__ import annotations

import pytest

from bench.effects import network
from bench.effects.network_classes import class_figures
from bench.effects.slices import Size, of_arm
from bench.figures import NotMeasuredError
from koordlet.decision.traffic import HOST_SOCKETS, INGRESS, MARKS, SHAPING
from koordlet.protocol.intervals import Verdict
from tests.kernel.net.pairs import Pair, features, pair

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.timeout(400),
]


def link_mbit(net: Pair) -> int:
    try:
        return network.link_mbit(net)
    except NotMeasuredError as error:
        pytest.skip(str(error))


def test_classes_and_a_pod_have_what_they_are_promised() -> None:
    """Each within 10 %, in both directions, also after a limit became another."""
    with pair() as net:
        found = class_figures(
            net, features(net.node, SHAPING, INGRESS), link_mbit(net), seconds=2.0
        )
    assert not [each for each in found if each.verdict is Verdict.MISSED]


def test_applications_have_the_share_of_their_class() -> None:
    """BE floods the link. LS has at least its promise, BE its own and no more. How long an answer
    to LS takes is for the bench: on a busy machine that is the CPU."""
    with pair() as net:
        features(net.node, SHAPING, MARKS, HOST_SOCKETS)
        total_mbit = link_mbit(net)
        slices = network.measure(net, total_mbit, Size(slices=1, slice_s=4.0), say=print)
    [shares] = of_arm(slices, "shares")
    print(f"of {total_mbit} Mbit/s: LS {shares.ls_mbit:.2f}, BE {shares.be_mbit:.2f}")
    assert shares.ls_mbit > 0.9 * total_mbit * network.LS_PERCENT / 100
    assert shares.be_mbit < 1.2 * total_mbit * network.BE_PERCENT / 100
    assert shares.be_mbit > 0.8 * total_mbit * network.BE_PERCENT / 100
