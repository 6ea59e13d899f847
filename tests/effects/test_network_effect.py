"""What a daemon's traffic classes do for an application, in namespaces of the test's own.

Shares and limits of the classes by themselves: tests/actuator/test_traffic_effect.py.
"""

from __future__ import annotations

import os

import pytest

from bench.effects import network
from tests.kernel.traffic_net import features, pair

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(400)]


def test_applications_have_the_share_of_their_class() -> None:
    """BE floods a link of 20 Mbit/s. LS has at least its promise, BE its own and no more. How long
    an answer to LS takes is for the bench: on a busy machine that is the CPU."""
    if os.geteuid():
        pytest.skip("needs root")
    with pair() as net:
        features(net.node, "tc.htb", "nft.priority", "nft.socket-cgroupv2")
        arms = network.measure(net, network.LINK_MBIT, rounds=1, seconds=3.0, say=print)
    shares = arms["shares"]
    assert shares.ls_mbit[0] > 0.9 * network.LINK_MBIT * network.LS_PERCENT / 100
    assert shares.be_mbit[0] < 1.2 * network.LINK_MBIT * network.BE_PERCENT / 100
    assert shares.be_mbit[0] > 0.8 * network.LINK_MBIT * network.BE_PERCENT / 100
