"""Devices and what lies below them, on a tree as sysfs has it, and on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from koordlet.kernel.block import read_block_devices, split_lvm_name
from koordlet.kernel.linux import LinuxHost
from tests.kernel.device_mapper import SECTOR_BYTES, linear, loop_device

UID = "6553a60b-2b97-442a-b6da-a5704d81dd98"
KUBELET = f"/var/lib/kubelet/pods/{UID}/volumes"


def _put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two disks; a partition and a disk in group data-1, a crypt device on a volume of it, a
    multipath NVMe disk."""
    _put(
        tmp_path / "sys/block",
        {
            "sda/dev": "8:0\n",
            "sda/sda1/dev": "8:1\n",
            "sda/sda1/partition": "1\n",
            "sda/sda2/dev": "8:2\n",
            "sda/sda2/partition": "2\n",
            "sda/size": "1\n",
            "sdb/dev": "8:16\n",
            "sdb/queue/scheduler": "none mq-deadline [bfq]\n",
            "nvme0n1/queue/scheduler": "[none] bfq\n",
            "nvme0n1/dev": "259:0\n",
            "nvme0n1/nvme0n1p20/dev": "259:20\n",
            "nvme0n1/nvme0n1p20/partition": "20\n",
            "nvme0c0n1/size": "1\n",
            "dm-0/dev": "253:0\n",
            "dm-0/dm/name": "data--1-my--lv\n",
            "dm-0/dm/uuid": "LVM-abc\n",
            "dm-1/dev": "253:1\n",
            "dm-1/dm/name": "secret\n",
            "dm-1/dm/uuid": "CRYPT-LUKS2-x\n",
        },
    )
    for link in ("dm-0/slaves/sda2", "dm-0/slaves/sdb", "dm-1/slaves/dm-0"):
        (tmp_path / "sys/block" / link).mkdir(parents=True)
    mounts = [
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw",
        f"2 1 253:1 / {KUBELET}/kubernetes.io~csi/pv-1/mount rw shared:1 - xfs /dev/dm-1 rw",
        f"3 1 0:40 / {KUBELET}/kubernetes.io~csi/pv-2/mount rw - btrfs /dev/nvme0n1p20 rw",
        f"4 1 0:41 / {KUBELET}/kubernetes.io~secret/token rw - tmpfs tmpfs rw",
        "5 1 8:16 / /data/volumes/x rw - ext4 /dev/sdb rw",
        "6 volumes/ cut",
    ]
    _put(tmp_path / "proc", {"self/mountinfo": "\n".join([*mounts, ""])})
    return tmp_path


def test_every_name_leads_to_its_disks(machine: Path) -> None:
    found = read_block_devices(LinuxHost(), f"{machine}/sys", f"{machine}/proc")
    both = ("8:0", "8:16")
    assert found.disks == {
        "sda": ("8:0",), "sda1": ("8:0",), "sda2": ("8:0",), "sdb": ("8:16",),
        "nvme0n1": ("259:0",), "nvme0n1p20": ("259:0",),
        "dm-0": both, "mapper/data--1-my--lv": both, "data-1/my-lv": both,
        "dm-1": both, "mapper/secret": both,
    }  # fmt: skip
    assert found.volume_groups == {"data-1": both}
    assert found.bfq == {"8:16"}
    assert found.pod_volumes == {f"{UID}/pv-1": both, f"{UID}/pv-2": ("259:0",)}


def test_the_mounts_of_init_count_where_it_is_seen(machine: Path) -> None:
    _put(machine / "proc", {"1/mountinfo": ""})
    assert read_block_devices(LinuxHost(), f"{machine}/sys", f"{machine}/proc").pod_volumes == {}


def test_devices_made_of_each_other_end(machine: Path) -> None:
    (machine / "sys/block/dm-0/slaves/dm-1").mkdir()
    found = read_block_devices(LinuxHost(), f"{machine}/sys", f"{machine}/proc")
    assert found.disks["dm-1"] == ("8:0", "8:16")


@pytest.mark.parametrize(
    ("name", "parts"),
    [("vg-lv", ("vg", "lv")), ("my--vg-a--b", ("my-vg", "a-b")), ("vg-a-b", ("vg", "a-b"))],
)
def test_lvm_names(name: str, parts: tuple[str, str]) -> None:
    assert split_lvm_name(name) == parts


@pytest.mark.kernel
def test_the_disks_of_this_machine() -> None:
    found = read_block_devices(LinuxHost())
    for name in Path("/sys/block").iterdir():
        number = (name / "dev").read_text().strip() if (name / "dev").exists() else None
        if number is not None and not any((name / "slaves").glob("*")):
            assert found.disks[name.name] == (number,)


@pytest.mark.kernel
def test_volumes_of_this_kernel_s_device_mapper(tmp_path: Path) -> None:
    """A volume as LVM makes them, and an encrypted one on it by its name alone."""
    size_bytes = 8 << 20
    group, volume = f"koordlet-test{os.getpid()}", "my-lv"
    name = "-".join(part.replace("-", "--") for part in (group, volume))
    with (
        loop_device(tmp_path, size_bytes) as loop,
        linear(name, f"LVM-{group}", loop, size_bytes // SECTOR_BYTES) as number,
        linear(f"{group}.luks", f"CRYPT-{group}", number, 8),
    ):
        found = read_block_devices(LinuxHost())
        below = found.disks[loop.removeprefix("/dev/")]
        assert len(below) == 1
        for known in (f"mapper/{name}", f"{group}/{volume}", f"mapper/{group}.luks"):
            assert found.disks[known] == below
        assert found.volume_groups[group] == below
    assert group not in read_block_devices(LinuxHost()).volume_groups
