"""Compiles, loads and attaches ``programs/run_queue.bcc.c``, and passes the descriptors on.

Run by the distribution's Python (3.9 or later), which alone has the module ``bcc``; so nothing of
koordlet is imported here. Arguments: descriptor of a socket, pid of the parent, path of the
source, 1 or 0 for cgroups by the controller ``cpu``.

One message goes over the socket, JSON: ``{"fds": [...]}`` with the names of the descriptors that
come with it, or ``{"lacks": [[package, why], ...]}`` or ``{"error": why}``.
"""

import array
import ctypes
import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1
MAPS = ("watched", "delays")
PROGRAMS = (
    ("on_wakeup", "sched_wakeup"),
    ("on_wakeup_new", "sched_wakeup_new"),
    ("on_switch", "sched_switch"),
)
KERNEL_HEADERS = "/sys/kernel/kheaders.tar.xz"


def main() -> int:
    descriptor, parent, source, by_cpu = sys.argv[1:]
    _be_modest(int(parent))
    with socket.socket(fileno=int(descriptor)) as sock:
        lacks = _lacks()
        if lacks:
            _send(sock, {"lacks": lacks}, [])
            return 1
        try:
            names, descriptors, keep = _load(source, by_cpu == "1")
        except Exception as error:  # bcc raises this very class
            _send(sock, {"error": str(error)[:1000]}, [])
            return 1
        _send(sock, {"fds": names}, descriptors)
        del keep
    return 0


def _be_modest(parent: int) -> None:
    """Leave with the parent, let it run first, and be the first to go where memory runs out."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("the parent is gone")
    os.nice(10)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass  # only the order in which the kernel ends processes


def _lacks() -> list[tuple[str, str]]:
    lacks = []
    if importlib.util.find_spec("bcc") is None:
        lacks.append(("python3-bpfcc", f"{sys.executable} has no module bcc"))
    release = os.uname().release
    tried = [os.environ.get("BCC_KERNEL_SOURCE") or f"/lib/modules/{release}/build"]
    if "BCC_KERNEL_SOURCE" not in os.environ:
        tried.append(KERNEL_HEADERS)
    if not any(os.path.exists(each) for each in tried):
        lacks.append((f"linux-headers-{release}", f"no headers in {' or '.join(tried)}"))
    return lacks


def _load(source: str, by_cpu: bool) -> tuple[list[str], list[int], Any]:
    """Names and descriptors, and what must live until they are sent."""
    bcc = importlib.import_module("bcc")  # not by name: whoever checks the types has none
    bpf = bcc.BPF(src_file=source.encode(), cflags=[f"-DBY_CPU_CONTROLLER={by_cpu:d}"])
    found: dict[str, int] = {name: bpf[name.encode()].map_fd for name in MAPS}
    for name, tracepoint in PROGRAMS:
        bpf.attach_raw_tracepoint(tp=tracepoint.encode(), fn_name=name.encode())
        found[name] = bpf.funcs[name.encode()].fd
        found["link " + name] = bpf.raw_tracepoint_fds[tracepoint.encode()]
    return list(found), list(found.values()), bpf


def _send(sock: socket.socket, message: dict[str, Any], descriptors: list[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    sock.sendmsg([json.dumps(message).encode()], rights if descriptors else [])


if __name__ == "__main__":
    sys.exit(main())
