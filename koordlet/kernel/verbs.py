"""RDMA verbs devices by PCI address, from sysfs (Linux
``Documentation/ABI/stable/sysfs-class-infiniband``)."""

from __future__ import annotations

import errno

from koordlet.decision.snapshot import RDMA_CM, DeviceNode
from koordlet.kernel.host import Host
from koordlet.kernel.parse import ParseError


def read_verbs(host: Host, sys_root: str = "/sys") -> dict[str, DeviceNode]:
    """PCI address -> verbs device; ``rdma_cm`` -> the connection manager. Empty without RDMA.

    Of a function with several verbs devices the first by name counts. Numbers come from sysfs, so
    that ``/dev`` need not be that of the host. Raises OSError and ParseError.
    """
    found = {}
    manager = f"{sys_root}/class/misc/{RDMA_CM}"
    if (node := _node(host, manager, RDMA_CM)) is not None:
        found[RDMA_CM] = node
    base = f"{sys_root}/bus/pci/devices"
    for address in _names(host, base):
        directory = f"{base}/{address}/infiniband_verbs"
        for name in _names(host, directory):
            if (node := _node(host, f"{directory}/{name}", name)) is not None:
                found[address] = node
                break
    return found


def _names(host: Host, directory: str) -> list[str]:
    """Sorted; empty where the directory is not there, or goes while it is read."""
    try:
        return host.listdir(directory)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise
        return []


def _node(host: Host, directory: str, name: str) -> DeviceNode | None:
    path = f"{directory}/dev"
    try:
        text = host.read(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise
        return None
    major, _, minor = text.strip().partition(b":")
    if not (major.isdigit() and minor.isdigit()):
        raise ParseError(path, 1, f"{text[:40]!r} is not MAJOR:MINOR")
    return DeviceNode(f"/dev/infiniband/{name}", int(major), int(minor))
