"""What a daemon's traffic classes do for an application, in namespaces of the test's own.

Shares and limits of the classes by themselves: tests/actuator/test_traffic_effect.py.
"""

from __future__ import annotations

import os
import statistics

import pytest

from bench.effects import network
from tests.kernel.traffic_net import features, pair

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(400)]


def test_applications_have_the_share_of_their_class() -> None:
    """BE floods a link of 20 Mbit/s. LS has at least its promise, BE at most its own and the
    borrowed rest of SYSTEM, and an answer to LS no longer waits behind BE."""
    if os.geteuid():
        pytest.skip("needs root")
    with pair() as net:
        features(net.node, "tc.htb", "nft.priority", "nft.socket-cgroupv2")
        arms = network.measure(net, network.LINK_MBIT, rounds=1, seconds=3.0, say=print)
    unmanaged, managed, shares = (arms[name] for name in ("unmanaged", "managed", "shares"))
    assert statistics.median(managed.waits_ms) <= statistics.median(unmanaged.waits_ms)
    assert shares.ls_mbit[0] > 0.9 * network.LINK_MBIT * network.LS_PERCENT / 100
    assert shares.be_mbit[0] < 1.2 * network.LINK_MBIT * network.BE_PERCENT / 100
    assert shares.be_mbit[0] > 0.8 * network.LINK_MBIT * network.BE_PERCENT / 100
