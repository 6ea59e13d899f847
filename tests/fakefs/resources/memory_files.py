"""The files of the memory controller."""

from __future__ import annotations

import errno
from collections.abc import Callable

from koordlet_fakefs.cgroup import Cgroup, Controller, Spec
from koordlet_fakefs.machine import Options
from koordlet_fakefs.parse import PAGE_BYTES, S64_MAX, number_in, refuse, size_bytes, strip, u64
from koordlet_fakefs.resources.memory import (
    EVENTS,
    MemoryState,
    enforce,
    node_bytes,
    reclaim,
    reparent,
    states_below,
    usage_bytes,
)

UNLIMITED_BYTES = S64_MAX // PAGE_BYTES * PAGE_BYTES
_V1_COUNTERS = (
    "cache",
    "rss",
    "rss_huge",
    "shmem",
    "mapped_file",
    "dirty",
    "writeback",
    "workingset_refault_anon",
    "workingset_refault_file",
    "swap",
    "swapcached",
    "pgpgin",
    "pgpgout",
    "pgfault",
    "pgmajfault",
    "inactive_anon",
    "active_anon",
    "inactive_file",
    "active_file",
    "unevictable",
)
_V2_COUNTERS = (
    "anon",
    "file",
    "kernel",
    "kernel_stack",
    "pagetables",
    "percpu",
    "sock",
    "vmalloc",
    "shmem",
    "file_mapped",
    "file_dirty",
    "file_writeback",
    "swapcached",
    "inactive_anon",
    "active_anon",
    "inactive_file",
    "active_file",
    "unevictable",
    "slab_reclaimable",
    "slab_unreclaimable",
    "slab",
    "workingset_refault_anon",
    "workingset_refault_file",
    "pgscan",
    "pgsteal",
    "pgfault",
    "pgmajfault",
)


def _attach(group: Cgroup) -> None:
    group.memory = MemoryState(group)


def _detach(group: Cgroup) -> None:
    state, group.memory = group.memory, None
    if state is not None and group.parent is not None:
        reparent(state, group.parent)


def _state(group: Cgroup) -> MemoryState:
    assert group.memory is not None
    return group.memory


def _read_limit(which: str, unlimited: str) -> Callable[[Cgroup], str]:
    def read(group: Cgroup) -> str:
        limit = _state(group).limits[which]
        return f"{unlimited if limit is None else limit}\n"

    return read


def _size(group: Cgroup, text: str, unlimited: str) -> int | None:
    saturates = group.machine.options.kernel >= (7, 2)
    return size_bytes(text, unlimited, saturates=saturates)


def _write_limit_v1(group: Cgroup, text: str) -> None:
    """EBUSY when reclaim cannot get below the new limit (no swap: anonymous memory stays)."""
    limit = _size(group, text, "-1")
    if group.parent is None:
        raise refuse(errno.EINVAL)
    if limit is not None and usage_bytes(group) > limit:
        reclaim(group, usage_bytes(group) - limit)
        if usage_bytes(group) > limit:
            raise refuse(errno.EBUSY)
    _state(group).limits["max"] = limit


def _write_limit_v2(which: str) -> Callable[[Cgroup, str], None]:
    def write(group: Cgroup, text: str) -> None:
        _state(group).limits[which] = _size(group, text, "max")
        enforce(group)

    return write


def _write_soft(group: Cgroup, text: str) -> None:
    _state(group).limits["soft"] = _size(group, text, "-1")


def _read_floor(which: str) -> Callable[[Cgroup], str]:
    def read(group: Cgroup) -> str:
        floor = _state(group).floors[which]
        return f"{'max' if floor >= UNLIMITED_BYTES else floor}\n"

    return read


def _write_floor(which: str) -> Callable[[Cgroup, str], None]:
    def write(group: Cgroup, text: str) -> None:
        floor = _size(group, text, "max")
        _state(group).floors[which] = UNLIMITED_BYTES if floor is None else floor

    return write


def _write_oom_group(group: Cgroup, text: str) -> None:
    _state(group).oom_group = number_in(strip(text), 0, 1, errno.EINVAL)


def _write_swappiness(group: Cgroup, text: str) -> None:
    _state(group).swappiness = number_in(text, 0, 200, errno.EINVAL)


def _write_use_hierarchy(group: Cgroup, text: str) -> None:
    if u64(text) != 1:
        raise refuse(errno.EINVAL)


def _force_empty(group: Cgroup, text: str) -> None:
    if group.parent is None:
        raise refuse(errno.EINVAL)
    reclaim(group, usage_bytes(group))


def _write_reclaim(group: Cgroup, text: str) -> None:
    wanted = _size(group, text, "")
    if wanted is None or reclaim(group, wanted) < wanted:
        raise refuse(errno.EAGAIN)


def _peak(group: Cgroup) -> str:
    return f"{max(_state(group).peak_bytes, usage_bytes(group))}\n"


def _reset_peak(group: Cgroup, text: str) -> None:
    _state(group).peak_bytes = usage_bytes(group)


def _reset_failcnt(group: Cgroup, text: str) -> None:
    _state(group).failcnt = 0


def _values(states: list[MemoryState], nodes: frozenset[int]) -> dict[str, int]:
    anon = sum(node_bytes(states, node)[0] for node in nodes)
    file = sum(node_bytes(states, node)[1] for node in nodes)
    return {
        "cache": file,
        "file": file,
        "rss": anon,
        "anon": anon,
        "inactive_anon": anon,
        "inactive_file": file // PAGE_BYTES // 2 * PAGE_BYTES,
        "active_file": file - file // PAGE_BYTES // 2 * PAGE_BYTES,
        "workingset_refault_file": sum(state.refaults for state in states),
    }


def _nodes(group: Cgroup) -> frozenset[int]:
    return group.machine.options.topology.nodes


def _stat_v1(group: Cgroup) -> str:
    own = _values([_state(group)], _nodes(group))
    total = _values(states_below(group), _nodes(group))
    limits = [
        above.memory.limits["max"]
        for above in group.ancestors()
        if above.memory is not None and above.memory.limits["max"] is not None
    ]
    limit = min((limit for limit in limits if limit is not None), default=UNLIMITED_BYTES)
    return (
        "".join(f"{name} {own.get(name, 0)}\n" for name in _V1_COUNTERS)
        + f"hierarchical_memory_limit {limit}\n"
        + "".join(f"total_{name} {total.get(name, 0)}\n" for name in _V1_COUNTERS)
    )


def _stat_v2(group: Cgroup) -> str:
    values = _values(states_below(group), _nodes(group))
    return "".join(f"{name} {values.get(name, 0)}\n" for name in _V2_COUNTERS)


def _numa_v1(group: Cgroup) -> str:
    """Pages: own, then hierarchical."""
    rows = []
    for prefix, states in (("", [_state(group)]), ("hierarchical_", states_below(group))):
        pages = {
            node: tuple(size // PAGE_BYTES for size in node_bytes(states, node))
            for node in sorted(_nodes(group))
        }
        for name, pick in (
            ("total", lambda anon, file: anon + file),
            ("file", lambda anon, file: file),
            ("anon", lambda anon, file: anon),
            ("unevictable", lambda anon, file: 0),
        ):
            per_node = {node: pick(*both) for node, both in pages.items()}
            cells = "".join(f" N{node}={count}" for node, count in per_node.items())
            rows.append(f"{prefix}{name}={sum(per_node.values())}{cells}\n")
    return "".join(rows)


def _numa_v2(group: Cgroup) -> str:
    """Bytes, hierarchical."""
    states = states_below(group)
    by_node = [(node, _values(states, frozenset({node}))) for node in sorted(_nodes(group))]
    return "".join(
        name + "".join(f" N{node}={values.get(name, 0)}" for node, values in by_node) + "\n"
        for name in ("anon", "file", "inactive_anon", "active_anon", "inactive_file", "active_file")
    )


def _usage(group: Cgroup) -> str:
    used = usage_bytes(group)
    if group.parent is None:
        used += group.machine.options.base_memory_bytes
    return f"{used}\n"


def _oom_control(group: Cgroup) -> str:
    return f"oom_kill_disable 0\nunder_oom 0\noom_kill {_state(group).events['oom_kill']}\n"


def _events(group: Cgroup) -> str:
    return "".join(f"{name} {_state(group).events[name]}\n" for name in EVENTS)


def _vendor(name: str, low: int, high: int, default: int) -> Spec:
    """A number that Anolis kernels add."""

    def read(group: Cgroup) -> str:
        return f"{_state(group).vendor.get(name, default)}\n"

    def write(group: Cgroup, text: str) -> None:
        _state(group).vendor[name] = number_in(text, low, high, errno.EINVAL)

    return Spec(name, read, write, on_root=False, when=_is_anolis)


def _is_anolis(options: Options) -> bool:
    return options.anolis


def _idle_page_stats(group: Cgroup) -> str:
    """kidled with use_hierarchy: what is cold is idle for 60 scans or more, once there were so
    many, the rest for one."""
    machine = group.machine
    period_ns = machine.kidled_period_s * 10**9
    scans = (machine.now_ns - machine.kidled_since_ns) // period_ns if period_ns else 0
    states = states_below(group) if scans >= 60 else []
    anon = sum(state.cold_anon_bytes for state in states)
    file = sum(state.cold_file_bytes for state in states)
    cold = {"csei": anon, "cfei": file // PAGE_BYTES // 2 * PAGE_BYTES}
    cold["dfei"] = file - cold["cfei"]
    lines = [
        "# version: 1.0", f"# scans: {scans}",
        f"# scan_period_in_seconds: {machine.kidled_period_s}", "# use_hierarchy: 1",
        "# buckets: 1,2,5,15,30,60,120,240", "#", "#   _-----=> clean/dirty",
        "#  / _----=> swap/file", "# | / _---=> evict/unevict", "# || / _--=> inactive/active",
        "# ||| /", "# |||| [1,2) [2,5) [5,15) [15,30) [30,60) [60,120) [120,240) [240,+inf)",
    ]  # fmt: skip
    for row in _IDLE_ROWS:
        size = cold.get(row, 0)
        older = size // PAGE_BYTES // 4 * PAGE_BYTES
        cells = (4096, 0, 0, 0, 8192, size - older, 0, older)
        lines.append(f"  {row}" + "".join(f" {cell:>14}" for cell in cells))
    return "\n".join(lines) + "\n"


_IDLE_ROWS = (
    *("csei", "dsei", "cfei", "dfei", "csui", "dsui", "cfui", "dfui"),
    *("csea", "dsea", "cfea", "dfea", "csua", "dsua", "cfua", "dfua", "slab"),
)

_FLOORS = tuple(
    Spec(f"memory.{which}", _read_floor(which), _write_floor(which), on_root=False)
    for which in ("min", "low")
)
_HIGH = Spec("memory.high", _read_limit("high", "max"), _write_limit_v2("high"), on_root=False)
_OOM_GROUP = Spec(
    "memory.oom.group",
    lambda group: f"{_state(group).oom_group}\n",
    _write_oom_group,
    on_root=False,
)
_VENDOR = (
    _vendor("memory.wmark_ratio", 0, 100, 0),
    _vendor("memory.wmark_scale_factor", 1, 1000, 50),
    _vendor("memory.wmark_min_adj", -25, 50, 0),
    _vendor("memory.priority", 0, 12, 0),
    _vendor("memory.use_priority_oom", 0, 1, 0),
    _vendor("memory.pagecache_limit.enable", 0, 1, 0),
    _vendor("memory.pagecache_limit.size", 0, S64_MAX, 0),
    _vendor("memory.pagecache_limit.sync", 0, 1, 0),
)

MEMORY = Controller(
    name="memory",
    attach=_attach,
    detach=_detach,
    v1=(
        Spec("memory.limit_in_bytes", _read_limit("max", str(UNLIMITED_BYTES)), _write_limit_v1),
        Spec("memory.soft_limit_in_bytes", _read_limit("soft", str(UNLIMITED_BYTES)), _write_soft),
        Spec("memory.usage_in_bytes", _usage),
        Spec("memory.max_usage_in_bytes", _peak, _reset_peak),
        Spec("memory.failcnt", lambda group: f"{_state(group).failcnt}\n", _reset_failcnt),
        Spec("memory.swappiness", lambda group: f"{_state(group).swappiness}\n", _write_swappiness),
        Spec("memory.use_hierarchy", lambda group: "1\n", _write_use_hierarchy),
        Spec("memory.force_empty", None, _force_empty),
        Spec("memory.oom_control", _oom_control),
        Spec("memory.stat", _stat_v1),
        Spec("memory.numa_stat", _numa_v1),
        *(spec._replace(when=_is_anolis) for spec in (*_FLOORS, _HIGH, _OOM_GROUP)),
        Spec("memory.idle_page_stats", _idle_page_stats, when=_is_anolis),
        *_VENDOR,
    ),
    v2=(
        *_FLOORS,
        _HIGH,
        Spec("memory.max", _read_limit("max", "max"), _write_limit_v2("max"), on_root=False),
        _OOM_GROUP,
        Spec("memory.current", _usage, on_root=False),
        Spec("memory.peak", _peak, on_root=False),
        Spec("memory.events", _events, on_root=False),
        Spec("memory.stat", _stat_v2),
        Spec("memory.numa_stat", _numa_v2),
        Spec("memory.reclaim", None, _write_reclaim),
        *_VENDOR,
    ),
)
