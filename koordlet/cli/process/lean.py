"""``koordlet run`` in little memory: 12 MiB less by what its libraries load on suspicion, 2 MiB
less by what malloc keeps.

asyncio imports ``ssl`` (4 MiB) and structlog imports ``rich`` (4 MiB) if they are there; both do
without. msgspec imports ``typing_extensions`` (a tenth of the start), which adds nothing to the
``typing`` of Python 3.11. hashlib loads OpenSSL's libcrypto (4 MiB) beside the functions of its
own. The daemon serves plain HTTP and a unix socket, and logs ``key=value``; in a cluster it speaks
TLS.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

UNUSED = ("ssl", "rich", "typing_extensions", "_hashlib")
TLS = frozenset({"ssl", "_hashlib"})
"""Those that a node of a cluster needs. asyncio does without for ever where they were not there
when it was imported."""

# mallopt(3), <malloc.h>
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_KEPT_BYTES = 128 << 10
_REUSED_BYTES = 512 << 10
_KEPT_FOR_READS_BYTES = 2 << 20


def main(args: argparse.Namespace) -> int:
    _keep_little()
    needed = TLS if _in_cluster(args.config) else ()
    with unavailable(*(name for name in UNUSED if name not in needed)):
        from koordlet.cli.process import run
    return run.main(args)


def _in_cluster(file: str) -> bool:
    """Whether the configuration names an API server. One that cannot be read is for those to refuse
    who read it in full."""
    try:
        with open(file, "rb") as found:
            table = tomllib.load(found).get("cluster")
    except (OSError, ValueError):
        return False
    return isinstance(table, dict) and table.get("api", "off") != "off"


def _keep_little() -> None:
    """One arena instead of one for each thread of grpc, and free memory back to the kernel: the
    threads hardly allocate at the same time."""
    _set({_M_ARENA_MAX: 1, _M_TRIM_THRESHOLD: _KEPT_BYTES})


def reuse_buffers() -> None:
    """asyncio reads into 256 KiB at a time. By default malloc asks the kernel for them and gives
    them back with each read, which costs the CRI proxy as much as a tenth of a call."""
    _set({_M_MMAP_THRESHOLD: _REUSED_BYTES, _M_TRIM_THRESHOLD: _KEPT_FOR_READS_BYTES})


def _set(knobs: Mapping[int, int]) -> None:
    """Other C libraries than glibc have no such knobs."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name, value in knobs.items():
            mallopt(name, value)


@contextmanager
def unavailable(*modules: str) -> Iterator[None]:
    """Inside the block these raise ImportError, unless they are loaded already."""
    hidden = [name for name in modules if name not in sys.modules]
    # None in sys.modules is Python's own mark for a module that cannot be imported.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
