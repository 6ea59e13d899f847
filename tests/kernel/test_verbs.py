"""RDMA verbs devices from sysfs."""

from __future__ import annotations

import errno

import pytest

from koordlet.decision.snapshot import RDMA_CM, DeviceNode
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.parse import ParseError
from koordlet.kernel.verbs import read_verbs
from tests.kernel.dict_host import DictHost

PCI = "/sys/bus/pci/devices"


def test_each_function_with_its_first_device_and_the_connection_manager() -> None:
    host = DictHost(
        {
            "/sys/class/misc/rdma_cm/dev": "10:58\n",
            f"{PCI}/0000:09:00.0/infiniband_verbs/uverbs1/dev": "231:193\n",
            f"{PCI}/0000:09:00.0/infiniband_verbs/uverbs0/dev": "231:192\n",
            f"{PCI}/0000:09:00.2/infiniband_verbs/uverbs7/dev": "231:199\n",
            f"{PCI}/0000:00:1f.0/vendor": "0x8086\n",
        }
    )
    assert read_verbs(host) == {
        RDMA_CM: DeviceNode("/dev/infiniband/rdma_cm", 10, 58),
        "0000:09:00.0": DeviceNode("/dev/infiniband/uverbs0", 231, 192),
        "0000:09:00.2": DeviceNode("/dev/infiniband/uverbs7", 231, 199),
    }


def test_an_empty_directory_is_no_device() -> None:
    directory = f"{PCI}/0000:09:00.0/infiniband_verbs"
    assert read_verbs(DictHost({}, (directory,))) == {}
    assert read_verbs(DictHost({}, (f"{directory}/uverbs0",))) == {}


def test_a_machine_without_pci_has_none() -> None:
    assert read_verbs(DictHost({})) == {}


def test_what_is_no_number_is_refused_with_its_path() -> None:
    path = "/sys/class/misc/rdma_cm/dev"
    with pytest.raises(ParseError, match=path):
        read_verbs(DictHost({path: "10"}))


def test_what_the_kernel_refuses_is_raised() -> None:
    class Refusing(DictHost):
        def listdir(self, path: str) -> list[str]:
            raise PermissionError(errno.EACCES, "no", path)

    with pytest.raises(PermissionError):
        read_verbs(Refusing({}))


def test_this_machine() -> None:
    for key, node in read_verbs(LinuxHost()).items():
        assert key == RDMA_CM or key.count(":") == 2
        assert node.path.startswith("/dev/infiniband/")
