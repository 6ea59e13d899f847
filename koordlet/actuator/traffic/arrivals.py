"""From a device to the ifb device that divides what arrives: one filter of ours, beside which
others may have theirs."""

from __future__ import annotations

from koordlet.kernel.net.filters import GONE
from koordlet.kernel.net.tc import Qdisc, TrafficControl


def leads_to_us(control: TrafficControl, arrivals: Qdisc, ifb: int, *, was_none: bool) -> bool:
    """Whether ``arrivals`` has a filter of ours. ``ifb``: index of the device of ours, 0 for none.

    ``was_none``: it was not there first. Then an empty one was made by us, and we were killed
    then; one that leads to a device that is gone was ours before somebody took that away.
    """
    if arrivals.kind != "ingress":
        return False
    to = control.redirects(arrivals.index)
    return bool(ifb and ifb in to) or (was_none and (not to or GONE in to))


def lead(control: TrafficControl, index: int, arrivals: Qdisc | None, ifb: int) -> None:
    """Arriving packets of the device ``index`` to the device ``ifb``. Raises OSError."""
    if arrivals is None:
        control.add_ingress(index)
    elif ifb in control.redirects(index):
        return
    control.remove_redirects(index, GONE)
    control.redirect(index, ifb)


def stop_leading(control: TrafficControl, index: int, ifb: int) -> None:
    """Before the device ``ifb`` goes, because the kernel drops what is led to none. The qdisc
    stays while others have filters in it. Raises OSError."""
    for to in (GONE, ifb):
        control.remove_redirects(index, to)
    if not control.redirects(index):
        control.remove_ingress(index)
