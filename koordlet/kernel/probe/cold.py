"""How each way of finding cold memory is tried; see ``attempts``. None of them marks, ages or
clears anything."""

from __future__ import annotations

from collections.abc import Callable

from koordlet.decision.resource import Resource
from koordlet.kernel.cold.cold import NotAvailable
from koordlet.kernel.cold.methods import METHODS, Machine
from koordlet.kernel.cold.refault import refault_pages
from koordlet.kernel.probe.scratch import NotHere, Scratch

_ANY_INTERVAL_S = 120.0


def attempt(name: str) -> Callable[[Scratch], str]:
    def tried(scratch: Scratch) -> str:
        machine = Machine(
            scratch.host, scratch.cgroups, _ANY_INTERVAL_S, scratch.proc_root, scratch.sys_root
        )
        try:
            return METHODS[name](machine).check()
        except NotAvailable as missing:
            raise NotHere(missing.why, missing.remedy) from missing

    return tried


def refaults(scratch: Scratch) -> str:
    path = scratch.file(Resource.MEMORY_STAT)
    data = scratch.cgroups.read_raw(scratch.name, Resource.MEMORY_STAT)
    if refault_pages(data, path) is None:
        raise NotHere(f"{path} has no workingset_refault", "use cgroup v2 or a kernel of 5.10")
    return f"read workingset_refault of {path}"
