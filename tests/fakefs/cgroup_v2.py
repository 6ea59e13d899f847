"""Files every v2 cgroup has, and the rules of v2 (Documentation/admin-guide/cgroup-v2.rst)."""

from __future__ import annotations

import errno
from collections.abc import Callable

from koordlet_fakefs.cgroup import INT_MAX, Cgroup, Spec, lines, processes_in, written_pid
from koordlet_fakefs.parse import boolean, number_in, refuse, strip
from koordlet_fakefs.resources.account import attach_account
from koordlet_fakefs.resources.cpu import stat_v2
from koordlet_fakefs.resources.limits import is_frozen
from koordlet_fakefs.resources.psi import RESOURCES, attach_pressure, pressure_specs, write_switch


def on_create(group: Cgroup) -> None:
    """What a v2 group has without any controller."""
    attach_account(group)
    attach_pressure(group)


def available(group: Cgroup) -> list[str]:
    """Controllers that may be enabled for the children, in the kernel's order."""
    if group.parent is None:
        return list(group.hierarchy.controllers)
    return [name for name in group.hierarchy.controllers if name in group.parent.subtree_control]


def _print(names: list[str]) -> str:
    return " ".join(names) + "\n" if names else ""


def _read_control(group: Cgroup) -> str:
    return _print([n for n in group.hierarchy.controllers if n in group.subtree_control])


def _can_be_thread_root(group: Cgroup) -> bool:
    """Whether processes here and controllers below may coexist: only threaded controllers, and
    no populated child yet."""
    controllers = group.hierarchy.controllers
    return group.parent is None or (
        not any(child.populated for child in group.children.values())
        and all(controllers[name].threaded for name in group.subtree_control)
    )


def _requests(group: Cgroup, text: str, known: frozenset[str]) -> dict[str, bool]:
    wanted: dict[str, bool] = {}
    for word in strip(text).split():
        name = word[1:]
        if word[0] not in "+-" or name not in known:
            raise refuse(errno.EINVAL)
        wanted[name] = word[0] == "+"
    return wanted


KNOWN = frozenset({"cpuset", "cpu", "io", "memory", "hugetlb", "pids", "perf_event"})
"""Controllers this kernel has for v2, mounted there or not."""


def _write_control(group: Cgroup, text: str) -> None:
    wanted = _requests(group, text, KNOWN)
    may = available(group)
    enable = [name for name, on in wanted.items() if on and name not in group.subtree_control]
    disable = [name for name, on in wanted.items() if not on and name in group.subtree_control]
    if any(name not in may for name in enable):
        raise refuse(errno.ENOENT)
    if any(name in child.subtree_control for name in disable for child in group.children.values()):
        raise refuse(errno.EBUSY)
    if enable and group.parent is not None and group.threads:
        domain = any(not group.hierarchy.controllers[name].threaded for name in enable)
        if domain or not _can_be_thread_root(group):
            raise refuse(errno.EBUSY)
    group.subtree_control.update(enable)
    group.subtree_control.difference_update(disable)
    for child in group.children.values():
        for name in enable:
            child.enable(name)
        for name in disable:
            child.disable(name)
    group.machine.generation += 1


def _write_procs(group: Cgroup, text: str) -> None:
    thread = group.machine.thread(written_pid(group, text))
    if group.subtree_control and not _can_be_thread_root(group):
        raise refuse(errno.EBUSY)
    group.attach(thread.process.threads.values())


def _write_threads(group: Cgroup, text: str) -> None:
    """Threads of a process stay in one domain: moving one elsewhere needs threaded mode, which
    the fake has not."""
    thread = group.machine.thread(written_pid(group, text))
    if thread.cgroups[group.hierarchy] is not group:
        raise refuse(errno.EOPNOTSUPP)


def _write_type(group: Cgroup, text: str) -> None:
    raise refuse(errno.EOPNOTSUPP if strip(text) == "threaded" else errno.EINVAL)


def _events(group: Cgroup) -> str:
    return f"populated {int(group.populated)}\nfrozen {int(is_frozen(group))}\n"


def _write_freeze(group: Cgroup, text: str) -> None:
    group.frozen = boolean(text)
    group.machine.generation += 1


def _write_kill(group: Cgroup, text: str) -> None:
    number_in(strip(text), 1, 1, errno.ERANGE)
    doomed = {p.pid: p for below in group.subtree() for p in processes_in(below)}
    for process in doomed.values():
        if not process.stuck:
            group.machine.exit(process)


def _stat(group: Cgroup) -> str:
    return f"nr_descendants {group.descendants}\nnr_dying_descendants 0\n"


def _limit(attribute: str) -> tuple[Callable[[Cgroup], str], Callable[[Cgroup, str], None]]:
    def read(group: Cgroup) -> str:
        limit = getattr(group, attribute)
        return f"{'max' if limit is None else limit}\n"

    def write(group: Cgroup, text: str) -> None:
        word = strip(text)
        value = None if word == "max" else number_in(word, 0, INT_MAX, errno.ERANGE)
        setattr(group, attribute, value)

    return read, write


CORE_V2 = (
    Spec("cgroup.procs", lambda g: lines(p.pid for p in processes_in(g)), _write_procs),
    Spec("cgroup.threads", lambda g: lines(sorted(g.threads)), _write_threads),
    Spec("cgroup.controllers", lambda g: _print(available(g))),
    Spec("cgroup.subtree_control", _read_control, _write_control),
    Spec("cgroup.type", lambda g: "domain\n", _write_type, on_root=False),
    Spec("cgroup.events", _events, on_root=False),
    Spec("cgroup.freeze", lambda g: f"{g.frozen}\n", _write_freeze, on_root=False),
    Spec("cgroup.kill", None, _write_kill, on_root=False),
    Spec("cgroup.stat", _stat),
    Spec("cgroup.max.depth", *_limit("max_depth")),
    Spec("cgroup.max.descendants", *_limit("max_descendants")),
    Spec("cgroup.pressure", lambda g: f"{g.pressure_on}\n", write_switch),
    Spec("cpu.stat", stat_v2),
    *pressure_specs(RESOURCES),
)
