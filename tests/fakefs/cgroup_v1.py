"""Files every v1 cgroup has."""

from __future__ import annotations

from koordlet_fakefs.cgroup import Cgroup, Spec, lines, processes_in, written_pid
from koordlet_fakefs.parse import u64


def _read_procs(group: Cgroup) -> str:
    return lines(process.pid for process in processes_in(group))


def _write_procs(group: Cgroup, text: str) -> None:
    thread = group.machine.thread(written_pid(group, text))
    group.attach(thread.process.threads.values())


def _read_tasks(group: Cgroup) -> str:
    return lines(sorted(group.threads))


def _write_tasks(group: Cgroup, text: str) -> None:
    group.attach([group.machine.thread(written_pid(group, text))])


def _write_clone_children(group: Cgroup, text: str) -> None:
    group.clone_children = int(u64(text) != 0)


def _write_notify(group: Cgroup, text: str) -> None:
    group.notify_on_release = int(u64(text) != 0)


CORE_V1 = (
    Spec("cgroup.procs", _read_procs, _write_procs),
    Spec("tasks", _read_tasks, _write_tasks),
    Spec("cgroup.clone_children", lambda group: f"{group.clone_children}\n", _write_clone_children),
    Spec("notify_on_release", lambda group: f"{group.notify_on_release}\n", _write_notify),
    Spec("cgroup.sane_behavior", lambda group: "0\n", on_child=False),
)
