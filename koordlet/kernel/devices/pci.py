"""Where a device is plugged in (Linux ``Documentation/ABI/testing/sysfs-bus-pci``)."""

from __future__ import annotations

from koordlet.decision.devices import Place
from koordlet.kernel.cgroup.forms import parse_int
from koordlet.kernel.host import Host

MOST_FUNCTIONS = 256
"""Virtual functions of one device that are looked at."""


def place(host: Host, directory: str) -> Place:
    """Of the device with this directory in sysfs. What the kernel does not know is left out."""
    try:
        path = host.real_path(directory)
    except OSError:
        return Place()
    parts = path.split("/")
    if not is_address(parts[-1]):
        return Place()
    return Place(parts[-1], next(filter(_is_root, parts), ""), _numa(host, path))


def virtual_functions(host: Host, directory: str) -> tuple[str, ...]:
    """PCI addresses of those that are switched on (SR-IOV)."""
    found = []
    try:
        if parse_int(host.read(f"{directory}/sriov_numvfs")) <= 0:
            return ()
        links = [name for name in host.listdir(directory) if name.startswith("virtfn")]
        for link in links[:MOST_FUNCTIONS]:
            address = host.real_path(f"{directory}/{link}").rpartition("/")[2]
            if is_address(address):
                found.append(address)
    except (OSError, ValueError):  # no SR-IOV, or it is being switched off
        pass
    return tuple(sorted(found))


def is_address(name: str) -> bool:
    """Whether it is a PCI address, such as ``0000:3b:00.0``."""
    domain, bus, rest = [*name.split(":"), "", ""][:3]
    device, _, function = rest.partition(".")
    return (
        name.count(":") == 2
        and len(domain) >= 4
        and (len(bus), len(device), len(function)) == (2, 2, 1)
        and all(each in _HEX for each in domain + bus + device + function)
    )


_HEX = frozenset("0123456789abcdef")


def _is_root(part: str) -> bool:
    """``pci0000:3a``: the root that the device hangs from."""
    domain, _, bus = part.removeprefix("pci").partition(":")
    return part.startswith("pci") and len(domain) >= 4 and len(bus) == 2


def _numa(host: Host, path: str) -> int | None:
    """Firmware that does not say has -1: on such a machine there is but node 0."""
    try:
        return max(parse_int(host.read(f"{path}/numa_node")), 0)
    except (OSError, ValueError):
        return None
