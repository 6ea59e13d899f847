"""What this machine has of devices, said as capabilities, and found by trying.

Not part of ``kernel/probe``: a driver may take seconds to begin, or hang, and hooks wait for that
probe. Collectors say what they found; ``try_devices`` asks where no daemon runs. What reads a kind
of devices is loaded where there are such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from koordlet.decision.snapshot import Capability
from koordlet.kernel.devices.aside import ANSWERS_WITHIN_S, Aside
from koordlet.kernel.host import Host

if TYPE_CHECKING:
    from koordlet.kernel.devices.nvml import NvmlError

NVML = "nvml"
RDMA = "rdma"
XPU = "xpu"
CONTROL = "/dev/nvidiactl"
"""There while the driver is loaded."""
VERSION = "driver/nvidia/version"
"""Below /proc, the same."""

_COST = "GPUs and who uses them are not measured"
_LOOK = "`dmesg` has the driver's words (NVRM, Xid); `nvidia-smi` shows whether it answers others"


def no_driver(host: Host, error: OSError, proc_root: str = "/proc") -> Capability:
    """The library cannot be loaded. Where there is no trace of a driver, nothing is amiss."""
    if host.exists(CONTROL) or host.exists(f"{proc_root}/{VERSION}"):
        why = f"the NVIDIA driver is loaded, its library is not: {error.strerror}"
        remedy = "install the driver's libraries (libnvidia-ml.so.1), or let LD_LIBRARY_PATH name "
        return Capability(NVML, False, why, _COST, f"{remedy}their directory")
    why = f"no NVIDIA driver: there is neither {CONTROL} nor libnvidia-ml.so.1"
    return Capability(NVML, False, why, _COST, "where there is a GPU, install its driver")


def refused(error: NvmlError) -> Capability:
    from koordlet.kernel.devices.nvml_abi import Code

    remedies: dict[int, str] = {
        Code.NO_PERMISSION: "let koordlet open /dev/nvidia* (koordlet.service does)",
        Code.DRIVER_NOT_LOADED: "load the module nvidia; `dmesg` says why it was not",
        Code.LIB_RM_VERSION_MISMATCH: "load the modules nvidia* anew, or reboot: module and "
        "library are of different versions",
    }
    return Capability(NVML, False, str(error), _COST, remedies.get(error.code, _LOOK))


def hangs(seconds: float) -> Capability:
    """koordlet waits beside the event loop, so that nothing else is late."""
    why = f"the NVIDIA driver has not answered for {seconds:.0f} s"
    return Capability(NVML, False, why, _COST, _LOOK)


def works(gpus: int, driver_version: str, cpu_s: float) -> Capability:
    why = f"{gpus} GPUs, driver {driver_version}; a reading takes {cpu_s * 1000:.1f} ms of CPU"
    return Capability(NVML, True, why)


def class_directory(sys_root: str = "/sys") -> str:
    """There where the kernel has RDMA."""
    return f"{sys_root}/class/infiniband"


def no_rdma(sys_root: str = "/sys") -> Capability:
    why = f"no RDMA device: {class_directory(sys_root)} does not exist or is empty"
    remedy = "where there is such a card, load its driver"
    return Capability(RDMA, False, why, "RDMA devices are not measured", remedy)


def rdma_hangs(seconds: float) -> Capability:
    why = f"reading RDMA devices has taken {seconds:.0f} s and goes on: firmware hangs"
    return Capability(RDMA, False, why, "RDMA devices are not measured", "`dmesg` names the card")


def rdma_works(names: list[str], cpu_s: float) -> Capability:
    text = f"{', '.join(names)}; a reading takes {cpu_s * 1000:.1f} ms of CPU"
    return Capability(RDMA, True, text)


def no_xpu(directory: str) -> Capability:
    why = f"no accelerator files: {directory} does not exist"
    remedy = (
        "where there are accelerators, set collectors.xpu.directory to what their daemon writes"
    )
    return Capability(XPU, False, why, "other accelerators are not known", remedy)


def xpu_unread(error: OSError) -> Capability:
    why = f"{error.filename}: {error.strerror}"
    return Capability(XPU, False, why, "other accelerators are not known", "see its owner and mode")


def xpu_works(xpus: int, directory: str, cpu_s: float) -> Capability:
    why = (
        f"{xpus} accelerators are described in {directory}; a reading takes {cpu_s * 1000:.1f} ms "
        "of CPU"
    )
    return Capability(XPU, True, why)


def try_devices(
    host: Host, proc_root: str = "/proc", sys_root: str = "/sys"
) -> tuple[Capability, ...]:
    """Waits for at most ``ANSWERS_WITHIN_S`` for each."""
    return _try_nvml(host, proc_root, sys_root), _try_rdma(host, sys_root)


def _try_nvml(host: Host, proc_root: str, sys_root: str) -> Capability:
    try:
        library = host.nvml()
    except OSError as error:
        return no_driver(host, error, proc_root)
    from koordlet.kernel.devices.gpus import GpuReader, GpuReadings
    from koordlet.kernel.devices.nvml import NvmlError

    reader = GpuReader(library, host, proc_root, sys_root)
    aside: Aside[GpuReadings] = Aside("nvml")
    aside.start(reader.read)
    if not aside.wait(ANSWERS_WITHIN_S):
        aside.finish(reader.close)
        return hangs(ANSWERS_WITHIN_S)
    try:
        found = aside.take()
    except NvmlError as error:
        return refused(error)
    outcome = works(len(found.gpus), found.driver_version, aside.cpu_s)
    aside.finish(reader.close)
    aside.wait(ANSWERS_WITHIN_S)
    return outcome


def _try_rdma(host: Host, sys_root: str) -> Capability:
    if not host.exists(class_directory(sys_root)):
        return no_rdma(sys_root)
    from koordlet.kernel.devices.rdma import read_devices

    aside: Aside[list[str]] = Aside("rdma")
    aside.start(lambda: [each.name for each in read_devices(host, sys_root)])
    if not aside.wait(ANSWERS_WITHIN_S):
        return rdma_hangs(ANSWERS_WITHIN_S)
    names = aside.take()
    return rdma_works(names, aside.cpu_s) if names else no_rdma(sys_root)
