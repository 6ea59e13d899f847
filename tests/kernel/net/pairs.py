"""The two namespaces of the benches, for tests: they skip where the host has none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from bench.effects import network_pair
from bench.effects.network_pair import (
    NODE_IPS,
    NODE_IPS6,
    PEER_IP,
    PEER_IP6,
    Flow,
    Namespace,
    Pair,
    rates_bps,
    udp,
)
from koordlet.kernel.probe.net import probe_traffic

__all__ = [
    "NODE_IPS",
    "NODE_IPS6",
    "PEER_IP",
    "PEER_IP6",
    "Flow",
    "Namespace",
    "Pair",
    "features",
    "pair",
    "rates_bps",
    "udp",
]


@contextmanager
def pair() -> Iterator[Pair]:
    """Skips where the host does not let us."""
    if os.geteuid():
        pytest.skip("network namespaces need root")
    if shutil.which("ip") is None:
        pytest.skip("iproute2 is not installed")
    with ExitStack() as stack:
        try:
            made = stack.enter_context(network_pair.pair())
        except OSError as error:
            pytest.skip(f"no network namespaces here: {error}")
        yield made


def features(namespace: Namespace, *needed: str) -> frozenset[str]:
    """What the kernel has. Skips without those ``needed``."""
    found = namespace.run(probe_traffic)
    for each in found:
        if each.feature in needed and not each.supported:
            pytest.skip(f"{each.feature}: {each.why}")
    return frozenset(each.feature for each in found if each.supported)
