"""Small controllers: pids, net_cls, freezer, and those of which only the tree matters."""

from __future__ import annotations

import errno

from koordlet_fakefs.cgroup import Cgroup, Controller, Spec
from koordlet_fakefs.parse import number_in, refuse, strip, u64

PID_MAX_LIMIT = 1 << 22


class PidsState:
    def __init__(self) -> None:
        self.limit: int | None = None


class NetClsState:
    def __init__(self) -> None:
        self.classid = 0


def _attach_pids(group: Cgroup) -> None:
    group.pids = PidsState()


def _detach_pids(group: Cgroup) -> None:
    group.pids = None


def _pids(group: Cgroup) -> PidsState:
    assert group.pids is not None
    return group.pids


def _read_max(group: Cgroup) -> str:
    limit = _pids(group).limit
    return f"{'max' if limit is None else limit}\n"


def _write_max(group: Cgroup, text: str) -> None:
    word = strip(text)
    _pids(group).limit = None if word == "max" else number_in(word, 0, PID_MAX_LIMIT, errno.EINVAL)


def _current(group: Cgroup) -> str:
    return f"{sum(len(below.threads) for below in group.subtree())}\n"


_PIDS_FILES = (
    Spec("pids.max", _read_max, _write_max, on_root=False),
    Spec("pids.current", _current, on_root=False),
    Spec("pids.events", lambda group: "max 0\n", on_root=False),
)
PIDS = Controller("pids", _attach_pids, _detach_pids, _PIDS_FILES, _PIDS_FILES, threaded=True)


def _attach_net_cls(group: Cgroup) -> None:
    group.net_cls = NetClsState()


def _detach_net_cls(group: Cgroup) -> None:
    group.net_cls = None


def _net_cls(group: Cgroup) -> NetClsState:
    assert group.net_cls is not None
    return group.net_cls


def _write_classid(group: Cgroup, text: str) -> None:
    _net_cls(group).classid = u64(text) & 0xFFFFFFFF


NET_CLS = Controller(
    "net_cls",
    _attach_net_cls,
    _detach_net_cls,
    (Spec("net_cls.classid", lambda group: f"{_net_cls(group).classid}\n", _write_classid),),
    (),
)


def is_frozen(group: Cgroup) -> bool:
    """Frozen itself or by a group above (v1 freezer and v2 alike)."""
    return any(above.frozen for above in group.ancestors())


def _write_state(group: Cgroup, text: str) -> None:
    word = strip(text)
    if word not in ("FROZEN", "THAWED"):
        raise refuse(errno.EINVAL)
    group.frozen = int(word == "FROZEN")
    group.machine.generation += 1


def _nothing(group: Cgroup) -> None:
    """The state lives in the group itself, or there is none."""


FREEZER = Controller(
    "freezer",
    _nothing,
    _nothing,
    (
        Spec(
            "freezer.state",
            lambda group: "FROZEN\n" if is_frozen(group) else "THAWED\n",
            _write_state,
            on_root=False,
        ),
        Spec("freezer.self_freezing", lambda group: f"{group.frozen}\n", on_root=False),
        Spec(
            "freezer.parent_freezing",
            lambda group: f"{int(is_frozen(group) and not group.frozen)}\n",
            on_root=False,
        ),
    ),
    (),
)

DEVICES = Controller("devices", _nothing, _nothing, (), ())
NET_PRIO = Controller("net_prio", _nothing, _nothing, (), ())
HUGETLB = Controller("hugetlb", _nothing, _nothing, (), ())
PERF_EVENT = Controller("perf_event", _nothing, _nothing, (), ())
