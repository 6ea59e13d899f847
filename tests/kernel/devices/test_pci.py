"""PCI addresses and places."""

from __future__ import annotations

import pytest
from koordlet_fakefs import FakeHost
from koordlet_fakefs.devices import Devices

from koordlet.decision.devices import Place
from koordlet.kernel.devices.pci import is_address, place, virtual_functions
from koordlet.kernel.linux import LinuxHost


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("0000:3b:00.0", True),
        ("10001:3b:1f.7", True),  # behind a VMD controller
        ("0000:3B:00.0", False),  # sysfs writes small letters
        ("0000:3b:00", False),
        ("3b:00.0", False),
        ("0000:3b:00.0:0", False),
        ("platform", False),
        ("", False),
        ("0000:3b:0g.0", False),
    ],
)
def test_addresses(name: str, wanted: bool) -> None:
    assert is_address(name) is wanted


def test_a_device_of_no_pci_bus_has_no_place() -> None:
    host = FakeHost()
    assert place(host, "/sys/devices/system/cpu") == Place()
    assert place(host, "/sys/bus/pci/devices/0000:3b:00.0") == Place()


def test_a_kernel_without_numa() -> None:
    host = FakeHost()
    directory = Devices(host.root).add_pci("0000:3b:00.0")
    del directory.entries["numa_node"]
    assert place(host, "/sys/bus/pci/devices/0000:3b:00.0") == Place(
        "0000:3b:00.0", "pci0000:3a", None
    )


def test_this_machine() -> None:
    """Every function of the real sysfs has its address and its root."""
    host = LinuxHost()
    base = "/sys/bus/pci/devices"
    if not host.exists(base):
        pytest.skip(f"there is no {base}")
    for name in host.listdir(base):
        found = place(host, f"{base}/{name}")
        assert found.bus_id == name
        assert found.pcie.startswith("pci")
        assert virtual_functions(host, f"{base}/{name}") == () or host.exists(
            f"{base}/{name}/virtfn0"
        )
