"""The virtual machines, and how QEMU is told to make one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MEMORY_MIB = 2048
KERNEL_WITH_EVERYTHING = Path(__file__).resolve().parents[3] / "shared" / "vm" / "bzImage"
"""Beside the project, where its developers keep one."""
_HALF = f"{MEMORY_MIB // 2}M"
# Two cores of two threads and two NUMA nodes; Linux 6.1 sees no SMT in QEMU's generic CPU.
_CORES_AND_NODES = (
    "-smp", "4,sockets=1,cores=2,threads=2", "-m", f"{MEMORY_MIB}M",
    "-object", f"memory-backend-ram,id=m0,size={_HALF}",
    "-object", f"memory-backend-ram,id=m1,size={_HALF}",
    "-numa", "node,nodeid=0,memdev=m0,cpus=0-1", "-numa", "node,nodeid=1,memdev=m1,cpus=2-3",
)  # fmt: skip
_AMD64_CPU, _TURN_US = "Skylake-Client-v4", 50
_TWO = ("-smp", "2", "-m", "1024M")


@dataclass(frozen=True)
class Image:
    """What ``tools/vm/build-guest`` builds: a root disk and a stock kernel of Debian."""

    suite: str
    architecture: Literal["amd64", "arm64"] = "amd64"


@dataclass(frozen=True)
class Guest:
    """``kernel``: another kernel, with every driver built in, that boots the image's disk.
    ``icount_shift``: each instruction takes 2 to this power nanoseconds of the guest's time, so
    nothing in the guest depends on the load of the machine, and its CPUs count instructions.
    ``measures``: its tests are about shares of its CPUs, so it goes before the guests beside it.
    ``is_long``: it runs with ``--long`` alone, or where it is named.
    ``cpus_and_memory``: what QEMU is told of them.
    ``reboots``: it may start again; else that ends it.
    ``network``: what QEMU is told of one; none: no network."""

    name: str
    image: Image
    about: str
    append: str = ""
    kernel: Path | None = None
    icount_shift: int | None = None
    measures: bool = False
    is_long: bool = False
    cpus_and_memory: tuple[str, ...] = _CORES_AND_NODES
    reboots: bool = False
    network: str = ""


def kernel_with_everything() -> Path:
    """Built by the user or by ours; stock kernels lack core scheduling."""
    return Path(os.environ.get("KOORDLET_VM_KERNEL") or KERNEL_WITH_EVERYTHING)


_TRIXIE = Image("trixie")
_ARM = Image("trixie", "arm64")
# Instead of systemd.
_PLAIN_INIT = "init=/usr/lib/koordlet-guest/plain-init"


def _taking_turns(cpus: int) -> tuple[str, ...]:
    """Words for QEMU of CPUs that take turns every 50 us of the guest's time.

    QEMU 7.2 lets a CPU go on until a timer is due, and the next one in its list has nothing left
    then: of two busy CPUs the second stands still. So one that the guest never starts stands
    between two that work (its numbers are the highest, and ``nr_cpus`` leaves them out). The timer
    is a network filter's: it is of the guest's clock and interrupts none of its CPUs."""
    model, words = f"{_AMD64_CPU}-x86_64-cpu", []
    for number in range(1, cpus):
        for core in (cpus + number - 1, number):
            words += ["-device", f"{model},socket-id=0,core-id={core},thread-id=0"]
    most = 2 * cpus - 1
    return (
        *("-smp", f"1,maxcpus={most},sockets=1,cores={most},threads=1", "-m", "1024M", *words),
        *("-netdev", "user,id=turns,restrict=on", "-object"),
        f"filter-buffer,id=turn,netdev=turns,queue=rx,interval={_TURN_US}",
    )


def _kernel(version: str, suite: str, cpus: int) -> Guest:
    """Guest to measure how a kernel shares its CPUs, at a time scale of its own."""
    return Guest(
        f"kernel-{version}" + (f"-{cpus}" if cpus != 2 else ""),
        Image(suite),
        f"Linux {version} with {cpus} CPUs, an instruction takes 1 ns, no systemd",
        append=f"{_PLAIN_INIT} tsc=reliable nr_cpus={cpus}",
        icount_shift=0,
        measures=True,
        is_long=True,
        cpus_and_memory=_taking_turns(cpus),
    )


GUESTS = (
    Guest("v2", _TRIXIE, "systemd, cgroup v2"),
    Guest(
        "hybrid",
        Image("bookworm"),
        "systemd, the classic hybrid layout of cgroup v1",
        append="systemd.unified_cgroup_hierarchy=0",
    ),
    Guest(
        "sid", Image("sid"), "the newest kernel, systemd and Python that Debian has", is_long=True
    ),
    Guest(
        "node",
        _TRIXIE,
        "a node of a cluster whose control plane is outside: systemd, cgroup v2, kubelet",
        is_long=True,
        # More CPUs would wait for each other: one thread of the machine runs them all.
        cpus_and_memory=("-smp", "2,sockets=1,cores=2,threads=1", "-m", "3072M"),
        reboots=True,
        measures=True,
    ),
    Guest(
        "load",
        _TRIXIE,
        "as v2 without systemd, effects on memory and disks",
        append=_PLAIN_INIT,
        measures=True,
    ),
    Guest(
        "busy",
        _TRIXIE,
        "as v2 without systemd, effects on CPUs and the network",
        append=_PLAIN_INIT,
        measures=True,
    ),
    *(
        _kernel(version, suite, cpus)
        for version, suite in (("6.1", "bookworm"), ("6.12", "trixie"), ("7.2", "sid"))
        for cpus in (2, 4)
    ),
    Guest("cold", _TRIXIE, "as v2 without systemd, cold memory", append=_PLAIN_INIT),
    Guest(
        "core",
        _TRIXIE,
        "a kernel with core scheduling, no systemd, cgroup v2",
        append=f"root=/dev/vda rw {_PLAIN_INIT}",
        kernel=kernel_with_everything(),
    ),
    Guest(
        "arm-icount",
        _ARM,
        "arm64 with a PMU, an instruction takes 4 ns, no systemd, cgroup v2",
        append=_PLAIN_INIT,
        cpus_and_memory=_TWO,
        icount_shift=2,
    ),
    Guest(
        "arm-generic",
        _ARM,
        "arm64 whose PMU counts cycles and no instructions, no systemd, cgroup v2",
        append=_PLAIN_INIT,
        cpus_and_memory=_TWO,
    ),
)

# The program and its machine, and what the kernel is told: its name for the first serial line, and
# (x86) not to test the timer, which on a busy host takes too long and ends in a panic.
_AMD64 = (
    ("qemu-system-x86_64", "-machine", "q35", "-cpu", _AMD64_CPU),
    "console=ttyS0 no_timer_check",
)  # fmt: skip
_ARM64 = (
    # The architecture's own pointer authentication would take half of the time in TCG.
    ("qemu-system-aarch64", "-machine", "virt,gic-version=3", "-cpu", "max,pauth-impdef=on"),
    "console=ttyAMA0",
)  # fmt: skip
# An emulated CPU that waits for the host's is no lockup: the kernel's dog barks after 120 s.
_APPEND = (
    "psi=1 mitigations=off random.trust_cpu=on net.ifnames=0 systemd.show_status=0 panic=-1 "
    "oops=panic watchdog_thresh=60"
)


def command(
    guest: Guest, image: Path, disks: tuple[Path, ...], kernel_log: Path, results: Path | None
) -> list[str]:
    """QEMU; what the guest prints on hvc0 comes out of stdout. ``disks``: vdb and so on, put back
    as they were; ``results``: the last one, which is not.

    - TCG and never KVM: a machine that is virtual itself may offer a KVM on which no stock
      kernel boots.
    - One thread: with more, QEMU 7.2 lets kernels die that patch their own code (tracepoints).
    """
    words, told = _ARM64 if guest.image.architecture == "arm64" else _AMD64
    options = [
        *words, *guest.cpus_and_memory, "-accel", "tcg,thread=single",
        "-kernel", str(guest.kernel or image / "vmlinuz"),
        "-append", f"{told} {_APPEND} {guest.append}",
        "-nodefaults", "-no-user-config", "-display", "none",
        *(() if guest.reboots else ("-no-reboot",)),
        "-serial", f"file:{kernel_log}",
        "-chardev", "stdio,id=console,signal=off", "-device", "virtio-serial-pci",
        "-device", "virtconsole,chardev=console", "-device", "virtio-rng-pci",
    ]  # fmt: skip
    if guest.kernel is None:
        options += ["-initrd", str(image / "initrd.img")]
    if guest.network:
        options += ["-netdev", f"user,id=n0,{guest.network}"]
        options += ["-device", "virtio-net-pci,netdev=n0"]
    if guest.icount_shift is not None:
        options += ["-icount", f"shift={guest.icount_shift}"]
    for number, file in enumerate(filter(None, (image / "rootfs.img", *disks, results))):
        keep = "cache=unsafe" if file is results else "snapshot=on,cache=unsafe"
        options += ["-drive", f"file={file},format=raw,if=none,id=d{number},{keep}",
                    "-device", f"virtio-blk-pci,drive=d{number}"]  # fmt: skip
    # It must not outlive whoever started it.
    nice = "5" if guest.measures else "10"
    return ["setpriv", "--pdeathsig", "KILL", "nice", "-n", nice, *options]
