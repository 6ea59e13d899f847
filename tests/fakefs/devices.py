"""PCI devices, RDMA devices and files of accelerators on the fake machine (Linux
``Documentation/ABI/stable/sysfs-class-infiniband``, ``testing/sysfs-bus-pci``)."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Any

from koordlet_fakefs.files import FilesDirectory
from koordlet_fakefs.tree import Directory, Leaf, Link, add_directory


class Devices:
    """Adds devices below ``root``, the root directory of a ``FakeHost``."""

    def __init__(self, root: Directory) -> None:
        self._root = root

    def add_pci(
        self, address: str, *, root: str = "pci0000:3a", bridge: str = "0000:3a:00.0", numa: int = 0
    ) -> Directory:
        """A function behind a bridge."""
        directory = add_directory(self._root, f"sys/devices/{root}/{bridge}/{address}")
        put(directory, "numa_node", f"{numa}\n")
        put(directory, "vendor", "0x15b3\n")
        self._bus().entries[address] = Link(directory)
        return directory

    def add_virtual_functions(self, address: str, *functions: str) -> None:
        """Switches SR-IOV of the function on, with these addresses."""
        physical = self.pci(address)
        put(physical, "sriov_numvfs", f"{len(functions)}\n")
        for number, each in enumerate(functions):
            virtual = self.add_pci(each)
            virtual.entries["physfn"] = Link(physical)
            physical.entries[f"virtfn{number}"] = Link(virtual)

    def add_rdma(
        self,
        name: str,
        address: str = "",
        *,
        ports: Sequence[str] = ("4: ACTIVE",),
        counters: Mapping[str, int] | None = None,
        hardware: Mapping[str, int] | None = None,
        network: str = "",
    ) -> Directory:
        """An RDMA device of the function at ``address``, without one in software. ``counters``,
        ``hardware``: of each port; None where the driver has no such directory."""
        parent = self.pci(address) if address else add_directory(self._root, "sys/devices/virtual")
        directory = add_directory(parent, f"infiniband/{name}")
        if address:
            directory.entries["device"] = Link(parent)
        if network:
            add_directory(parent, f"net/{network}")
        for number, state in enumerate(ports, start=1):
            port = add_directory(directory, f"ports/{number}")
            put(port, "state", f"{state}\n")
            put(port, "rate", "100 Gb/sec (4X EDR)\n")
            put(port, "link_layer", "Ethernet\n")
            for folder, values in (("counters", counters), ("hw_counters", hardware)):
                for counter, value in (values or {}).items():
                    put(add_directory(port, folder), counter, f"{value}\n")
        self._class().entries[name] = Link(directory)
        return directory

    def count(self, name: str, counter: str, value: int, port: int = 1) -> None:
        """``counter`` with its folder, such as ``counters/port_rcv_data``."""
        folder, _, file = counter.partition("/")
        put(add_directory(self._rdma(name), f"ports/{port}/{folder}"), file, f"{value}\n")

    def refuse(self, name: str, counter: str, port: int = 1) -> None:
        """The driver does not tell this counter: EINVAL."""
        folder, _, file = counter.partition("/")
        directory = add_directory(self._rdma(name), f"ports/{port}/{folder}")
        directory.entries[file] = Leaf(None, open_errno=errno.EACCES)

    def set_state(self, name: str, state: str, port: int = 1) -> None:
        put(add_directory(self._rdma(name), f"ports/{port}"), "state", f"{state}\n")

    def remove_rdma(self, name: str) -> None:
        """Its driver was unloaded."""
        del self._class().entries[name]

    def pci(self, address: str) -> Directory:
        link = self._bus().entries[address]
        assert isinstance(link, Link)
        return link.target

    def files(self, path: str) -> FilesDirectory:
        """The directory of ordinary files at the absolute ``path``."""
        parent, _, name = path.strip("/").rpartition("/")
        directory = add_directory(self._root, parent)
        found: Any = directory.entries.setdefault(name, FilesDirectory())
        assert isinstance(found, FilesDirectory)
        return found

    def _rdma(self, name: str) -> Directory:
        link = self._class().entries[name]
        assert isinstance(link, Link)
        return link.target

    def _class(self) -> Directory:
        return add_directory(self._root, "sys/class/infiniband")

    def _bus(self) -> Directory:
        return add_directory(self._root, "sys/bus/pci/devices")


def put(directory: Directory, name: str, text: str) -> None:
    directory.entries[name] = Leaf(lambda: text, open_errno=errno.EACCES)
