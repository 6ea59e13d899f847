"""The cpuset controller: v1 (kernel/cgroup/cpuset-v1.c) refuses, v2 accepts and derives."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Literal

from koordlet_fakefs.cgroup import Cgroup, Controller, Spec
from koordlet_fakefs.parse import id_list, print_ids, refuse, strip

Ids = frozenset[int]
Which = Literal["cpus", "mems"]
MAX_NODES = 1024
"""Length of the kernel's node bitmap (CONFIG_NODES_SHIFT)."""


class CpusetState:
    """``cpus`` and ``mems`` as written; v2 derives what is in effect, v1 uses them as they are."""

    def __init__(self, group: Cgroup) -> None:
        self.group = group
        topology = group.machine.options.topology
        self.cpus: Ids = frozenset()
        self.mems: Ids = frozenset()
        parent = _parent(group)
        if group.hierarchy.version == 1 and parent is None:
            self.cpus, self.mems = topology.online, topology.nodes
        elif group.hierarchy.version == 1 and parent is not None and group.clone_children:
            self.cpus, self.mems = parent.cpus, parent.mems

    def effective(self, which: Which) -> Ids:
        """What tasks here may use."""
        topology = self.group.machine.options.topology
        usable = topology.online if which == "cpus" else topology.nodes
        own: Ids = getattr(self, which)
        if self.group.hierarchy.version == 1:
            return own & usable
        parent = _parent(self.group)
        above = usable if parent is None else parent.effective(which)
        return own & above or above

    def check_attach(self) -> None:
        if not self.effective("cpus") or not self.mems:
            raise refuse(errno.ENOSPC)


def cpus_allowed(group: Cgroup) -> Ids:
    """CPUs that tasks of a group of the cpuset hierarchy may run on."""
    for above in group.ancestors():
        if above.cpuset is not None:
            return above.cpuset.effective("cpus")
    return group.machine.options.topology.online


def mems_allowed(group: Cgroup) -> Ids:
    for above in group.ancestors():
        if above.cpuset is not None:
            return above.cpuset.effective("mems")
    return group.machine.options.topology.nodes


def _parent(group: Cgroup) -> CpusetState | None:
    return None if group.parent is None else group.parent.cpuset


def _state(group: Cgroup) -> CpusetState:
    assert group.cpuset is not None
    return group.cpuset


def _attach(group: Cgroup) -> None:
    group.cpuset = CpusetState(group)


def _detach(group: Cgroup) -> None:
    group.cpuset = None
    group.machine.generation += 1


def _check_v1(group: Cgroup, which: Which, ids: Ids) -> None:
    """Children must fit inside, then it must fit inside its parent."""
    for child in group.children.values():
        if not getattr(_state(child), which) <= ids:
            raise refuse(errno.EBUSY)
    parent = _parent(group)
    if parent is not None and not ids <= getattr(parent, which):
        raise refuse(errno.EACCES)


def _writer(which: Which) -> Callable[[Cgroup, str], None]:
    def write(group: Cgroup, text: str) -> None:
        if group.parent is None:
            raise refuse(errno.EACCES)
        state = _state(group)
        topology = group.machine.options.topology
        bits = topology.possible_count if which == "cpus" else MAX_NODES
        ids = id_list(strip(text), bits)
        v1 = group.hierarchy.version == 1
        usable = topology.nodes if which == "mems" else topology.online if v1 else topology.present
        if not ids <= usable:
            raise refuse(errno.EINVAL)
        if ids == getattr(state, which):
            return
        if v1:
            _check_v1(group, which, ids)
        needs_some = v1 or group.machine.options.kernel < (7, 2)
        if not ids and needs_some and group.populated and getattr(state, which):
            raise refuse(errno.ENOSPC)
        setattr(state, which, ids)
        group.machine.generation += 1

    return write


def _reader(which: Which) -> Callable[[Cgroup], str]:
    return lambda group: print_ids(getattr(_state(group), which)) + "\n"


def _effective_reader(which: Which) -> Callable[[Cgroup], str]:
    return lambda group: print_ids(_state(group).effective(which)) + "\n"


CPUSET = Controller(
    name="cpuset",
    attach=_attach,
    detach=_detach,
    threaded=True,
    v1=(
        Spec("cpuset.cpus", _reader("cpus"), _writer("cpus")),
        Spec("cpuset.mems", _reader("mems"), _writer("mems")),
        Spec("cpuset.effective_cpus", _effective_reader("cpus")),
        Spec("cpuset.effective_mems", _effective_reader("mems")),
    ),
    v2=(
        Spec("cpuset.cpus", _reader("cpus"), _writer("cpus"), on_root=False),
        Spec("cpuset.mems", _reader("mems"), _writer("mems"), on_root=False),
        Spec("cpuset.cpus.effective", _effective_reader("cpus")),
        Spec("cpuset.mems.effective", _effective_reader("mems")),
    ),
)
