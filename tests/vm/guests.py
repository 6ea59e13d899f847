"""The virtual machines, and how QEMU is told to make one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MEMORY_MIB = 2048
KERNEL_WITH_EVERYTHING = Path(__file__).resolve().parents[3] / "shared" / "vm" / "bzImage"
"""Beside the project, where its developers keep one."""


@dataclass(frozen=True)
class Guest:
    """``suite``: of Debian, whose root disk and stock kernel it has. ``kernel``: another kernel,
    with every driver built in, that boots the same disk; the guest then runs without systemd."""

    name: str
    suite: str
    about: str
    append: str = ""
    kernel: Path | None = None


def kernel_with_everything() -> Path:
    """Built by the user or by ours; stock kernels lack core scheduling."""
    return Path(os.environ.get("KOORDLET_VM_KERNEL") or KERNEL_WITH_EVERYTHING)


GUESTS = (
    Guest("v2", "trixie", "systemd, cgroup v2"),
    Guest(
        "hybrid",
        "bookworm",
        "systemd, the classic hybrid layout of cgroup v1",
        append="systemd.unified_cgroup_hierarchy=0",
    ),
    Guest("load", "trixie", "as v2, for effects on memory and disks"),
    Guest("busy", "trixie", "as v2, for effects on CPUs and the network"),
    Guest(
        "core",
        "trixie",
        "a kernel with core scheduling, no systemd, cgroup v2",
        append="root=/dev/vda rw init=/usr/lib/koordlet-guest/plain-init",
        kernel=kernel_with_everything(),
    ),
)

_APPEND = (
    "console=ttyS0 psi=1 mitigations=off random.trust_cpu=on net.ifnames=0 "
    "systemd.show_status=0 panic=-1 oops=panic"
)


def command(guest: Guest, image: Path, disks: tuple[Path, ...], kernel_log: Path) -> list[str]:
    """QEMU with two cores of two threads and two NUMA nodes; what the guest prints on hvc0 comes
    out of stdout. ``disks``: vdb and so on; all but the last are put back as they were.

    - TCG and never KVM: a machine that is virtual itself may offer a KVM on which no stock
      kernel boots.
    - One thread: with more, QEMU 7.2 lets kernels die that patch their own code (tracepoints).
    - An Intel model: Linux 6.1 sees no SMT in QEMU's generic one.
    """
    half = f"{MEMORY_MIB // 2}M"
    options = [
        "-machine", "q35", "-accel", "tcg,thread=single", "-cpu", "Skylake-Client-v4",
        "-smp", "4,sockets=1,cores=2,threads=2", "-m", f"{MEMORY_MIB}M",
        "-object", f"memory-backend-ram,id=m0,size={half}",
        "-object", f"memory-backend-ram,id=m1,size={half}",
        "-numa", "node,nodeid=0,memdev=m0,cpus=0-1", "-numa", "node,nodeid=1,memdev=m1,cpus=2-3",
        "-kernel", str(guest.kernel or image / "vmlinuz"),
        "-append", f"{_APPEND} {guest.append}",
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-serial", f"file:{kernel_log}",
        "-chardev", "stdio,id=console,signal=off", "-device", "virtio-serial-pci",
        "-device", "virtconsole,chardev=console", "-device", "virtio-rng-pci",
    ]  # fmt: skip
    if guest.kernel is None:
        options += ["-initrd", str(image / "initrd.img")]
    files = (image / "rootfs.img", *disks)
    for number, file in enumerate(files):
        keep = "cache=unsafe" if file is files[-1] else "snapshot=on,cache=unsafe"
        options += ["-drive", f"file={file},format=raw,if=none,id=d{number},{keep}",
                    "-device", f"virtio-blk-pci,drive=d{number}"]  # fmt: skip
    # It must not outlive whoever started it.
    return ["setpriv", "--pdeathsig", "KILL", "nice", "qemu-system-x86_64", *options]
