"""RDMA of a real kernel: a device in software (soft-RoCE) on a dummy network device.

Only in a guest, whose network is nobody else's. Needs the modules rdma_rxe and dummy, and the
programs ``ip`` and ``rdma`` of iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from koordlet.decision.device_report import device_report
from koordlet.decision.devices import Inventory, Place, RdmaDevice, State
from koordlet.kernel.devices.outcomes import try_devices
from koordlet.kernel.devices.rdma import read_counters, read_devices
from koordlet.kernel.linux import LinuxHost

NAME, NETWORK = "rxe0", "koordrxe"
MODULES = ("crc32_generic", "dummy", "rdma_rxe")
"""The first is built in where it cannot be loaded."""

pytestmark = pytest.mark.kernel


def _run(*command: str) -> str:
    """What it says when it fails; empty when it works."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        return str(error)
    return "" if done.returncode == 0 else f"{' '.join(command)}: {done.stderr.strip()}"


@pytest.fixture(scope="module")
def host() -> Iterator[LinuxHost]:
    if os.geteuid() != 0 or not os.environ.get("KOORDLET_GUEST"):
        pytest.skip("needs root in a guest of tests/vm")
    for program in ("ip", "rdma"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}: apt-get install iproute2")
    said = {module: _run("modprobe", module) for module in MODULES}
    if not Path("/sys/module/rdma_rxe").exists():
        if "not found" in said["rdma_rxe"]:
            pytest.skip("needs a kernel with the module rdma_rxe (the cloud kernels have none)")
        pytest.fail(f"the module rdma_rxe is there and cannot be loaded: {said}")
    try:
        for command in (
            ("ip", "link", "add", NETWORK, "type", "dummy"),
            ("ip", "link", "set", NETWORK, "up"),
            ("rdma", "link", "add", NAME, "type", "rxe", "netdev", NETWORK),
        ):
            if why := _run(*command):
                pytest.fail(f"this kernel has the module and makes no soft-RoCE device: {why}")
        yield LinuxHost()
    finally:
        _run("rdma", "link", "delete", NAME)
        _run("ip", "link", "delete", NETWORK)


def device(host: LinuxHost) -> RdmaDevice:
    return next(each for each in read_devices(host) if each.name == NAME)


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_it_is_listed_without_a_place(host: LinuxHost) -> None:
    until(lambda: device(host).health.is_good)
    found = device(host)
    assert (found.place, found.virtual_functions) == (Place(), ())
    (port,) = found.ports
    assert (port.number, port.state, port.link_layer) == (1, "ACTIVE", "Ethernet")
    assert "Gb/sec" in port.rate
    assert device_report(Inventory(rdma=(found,)), time.time()).devices == ()


def test_its_counters_are_packets(host: LinuxHost) -> None:
    """Linux 7.2 has the files for bytes too, and leaves them at 0."""
    (counters,) = read_counters(host, device(host))
    assert (counters.received_bytes, counters.sent_bytes) in ((None, None), (0, 0))
    assert {"sent_pkts", "rcvd_pkts"} <= counters.others.keys()
    assert all(value >= 0 for value in counters.others.values())
    assert "lifespan" not in counters.others


def test_a_link_that_goes_down_is_seen(host: LinuxHost) -> None:
    until(lambda: device(host).health.is_good)
    assert _run("ip", "link", "set", NETWORK, "down") == ""
    until(lambda: device(host).health.state is State.UNHEALTHY)
    assert device(host).health.why == "port 1 is DOWN"
    assert _run("ip", "link", "set", NETWORK, "up") == ""
    until(lambda: device(host).health.is_good)


def test_it_is_found_by_trying(host: LinuxHost) -> None:
    found = {each.feature: each for each in try_devices(host)}
    assert found["rdma"].supported
    assert NAME in found["rdma"].why
