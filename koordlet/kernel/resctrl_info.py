"""Facts of resctrl that a node has for as long as it is mounted: what can be divided, and how many
groups can be counted apart (Linux ``Documentation/filesystems/resctrl.rst``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from koordlet.decision.resctrl import STEP_PERCENT
from koordlet.kernel.host import Host
from koordlet.kernel.parse import ParseError
from koordlet.kernel.proc.files import ARM, cpu_vendor
from koordlet.kernel.resctrl import (
    L3_LINES,
    control_groups,
    in_mbps,
    is_ours,
    monitor_groups,
    mount_point,
    parse,
)


class Divisible(NamedTuple):
    """Resources that resctrl can divide and count here; see ``Rdt`` for the fields."""

    l3_masks: Mapping[int, int] = {}
    l3_lines: tuple[str, ...] = ("L3",)
    l3_min_ways: int = 1
    mb_caches: tuple[int, ...] = ()
    mb_least: int = STEP_PERCENT
    mb_step: int = STEP_PERCENT
    rmids: int = 0
    rmids_taken: int = 0
    rmids_of_group: int | None = None
    mbm_groups: int | None = None
    mbm_on_mkdir: bool = True
    vendor: str = ""


def read_resctrl(host: Host, sys_root: str = "/sys", proc_root: str = "/proc") -> Divisible:
    """Nothing where resctrl is not mounted. Raises OSError and ParseError.

    Memory bandwidth in MB/s (``-o mba_MBps``) cannot be divided by percents: left out.
    """
    root = mount_point(sys_root)
    if not host.exists(f"{root}/schemata"):
        return Divisible()
    found = parse(host.read(f"{root}/schemata"), f"{root}/schemata")
    here = Divisible()
    lines = tuple(name for name in L3_LINES if any(line == name for line, _ in found))
    if lines:
        caches = sorted({cache for line, cache in found if line == lines[0]})
        about = f"{root}/info/{lines[0]}"
        mask = _number(host, f"{about}/cbm_mask", 16)
        least = _number(host, f"{about}/min_cbm_bits")
        here = Divisible(dict.fromkeys(caches, mask), lines, least)
    bandwidths = sorted(cache for line, cache in found if line == "MB")
    if bandwidths and not in_mbps(found):
        about = f"{root}/info/MB"
        here = here._replace(
            mb_caches=tuple(bandwidths),
            mb_least=_number(host, f"{about}/min_bandwidth"),
            mb_step=max(_number(host, f"{about}/bandwidth_gran"), 1),
        )
    rmids = f"{root}/info/L3_MON/num_rmids"
    if host.exists(rmids):
        taken = sum(1 for _ in _groups_beside_pods(host, root))
        here = here._replace(rmids=_number(host, rmids), rmids_taken=taken)
    if here.rmids or here.mb_caches:
        here = here._replace(vendor=cpu_vendor(host, proc_root))
    if here.rmids and here.vendor == ARM and (controls := _most_control_groups(host, root)):
        here = here._replace(rmids_of_group=here.rmids // controls)
    if assigns_counters(host, root):
        on_mkdir = _number(host, f"{root}/info/L3_MON/mbm_assign_on_mkdir") == 1
        here = here._replace(mbm_groups=_mbm_groups(host, root), mbm_on_mkdir=on_mkdir)
    return here


def assigns_counters(host: Host, root: str) -> bool:
    """Return whether groups share counters of memory traffic (mode ``mbm_event``, Linux 6.18): one
    that has none reads ``Unassigned``, and the sum of its control group goes without it."""
    try:
        mode = host.read(f"{root}/info/L3_MON/mbm_assign_mode")
    except FileNotFoundError:
        return False
    return b"[mbm_event]" in mode


def _mbm_groups(host: Host, root: str) -> int:
    """Most groups that can have a counter for every event; where domains differ, in the one with
    the fewest."""
    path = f"{root}/info/L3_MON/num_mbm_cntrs"
    events = len(host.subdirs(f"{root}/info/L3_MON/event_configs"))
    try:
        domains = host.read(path).decode().strip().split(";")
        return min(int(each.partition("=")[2]) for each in domains) // max(events, 1)
    except ValueError as error:
        raise ParseError(path, 1, "not a list of DOMAIN=NUMBER") from error


def _most_control_groups(host: Host, root: str) -> int:
    """Return how many control groups there can be; 0 where nothing is allocated."""
    about = (f"{root}/info/{line}/num_closids" for line in (*L3_LINES, "MB"))
    return min((_number(host, path) for path in about if host.exists(path)), default=0)


def _groups_beside_pods(host: Host, root: str) -> Iterator[str]:
    """Each has an RMID: control groups, the default one among them, and monitor groups that are
    not ours."""
    for control in ("", *control_groups(host, root)):
        yield control
        monitors = monitor_groups(host, root, control)
        yield from (each for each in monitors if not is_ours(each))


def _number(host: Host, path: str, base: int = 10) -> int:
    try:
        return int(host.read(path), base)
    except ValueError as error:
        raise ParseError(path, 1, f"not a number of base {base}") from error
