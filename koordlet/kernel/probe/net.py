"""What this kernel has for dividing network traffic, found by trying.

Not part of ``probe``, because an attempt loads kernel modules: it is made when somebody asks for
traffic classes. Everything happens on a device of the probe's own and in a table that
sees no packets, both removed whatever happens.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable

from koordlet.decision.snapshot import Capability
from koordlet.decision.traffic import HOST_SOCKETS, INGRESS, MARKS, NET_CLS_MARKS, SHAPING
from koordlet.kernel.net.filters import SOURCE, Match
from koordlet.kernel.net.marks import Marks, NetFilter, SocketMark
from koordlet.kernel.net.tc import HtbClass, TrafficControl

_DEVICE = "koordtry"
"""Beginning of the name of the device; the process that tries follows, in 7 digits at most."""
_TABLE = "koordlet-probe"
_KINDS = ("ifb", "dummy")
_COST = {
    SHAPING: "network QoS by traffic classes (netQOSPolicy tc) does nothing",
    INGRESS: "what arrives is not divided, only what is sent",
    MARKS: "what pods send counts as of the class system where masquerading or a tunnel hides "
    "their address",
    HOST_SOCKETS: "what pods on the host network send counts as of the class system, unless "
    "net_cls tells",
    NET_CLS_MARKS: "net_cls.classid does not count as a traffic class",
}
_REMEDY = {
    SHAPING: "a kernel with the modules sch_htb and cls_u32, and CAP_NET_ADMIN for koordlet",
    INGRESS: "a kernel with the modules ifb, sch_ingress and act_mirred",
    MARKS: "a kernel with nf_tables (nf_tables_inet)",
    HOST_SOCKETS: "Linux 5.13 or later with the module nft_socket, and a mounted cgroup2",
    NET_CLS_MARKS: "a kernel with nf_tables and the controller net_cls",
}


def probe_traffic() -> tuple[Capability, ...]:
    """One capability per feature. Blocks for some milliseconds, longer where modules are loaded."""
    found: dict[str, str | OSError] = {}
    try:
        control = TrafficControl()
    except OSError as error:
        found = {SHAPING: error, INGRESS: error}
    else:
        with contextlib.closing(control):
            found = _try_control(control)
    with contextlib.closing(NetFilter(_TABLE)) as tables:
        found |= _try_tables(tables)
    return tuple(_capability(feature, answer) for feature, answer in found.items())


def _try_control(control: TrafficControl) -> dict[str, str | OSError]:
    try:
        _remove_stale(control)
        index, kind = _add(control, f"{_DEVICE}{os.getpid()}")
    except OSError as error:
        return {SHAPING: error, INGRESS: error}
    try:
        return {
            SHAPING: _attempt(lambda: _shape(control, index)),
            INGRESS: _attempt(lambda: _redirect(control, index, kind)),
        }
    finally:
        control.remove_link(index)


def _remove_stale(control: TrafficControl) -> None:
    """Devices of attempts that were killed."""
    for link in control.links().values():
        process = link.name.removeprefix(_DEVICE)
        ours = link.name == _DEVICE + process and process.isdigit() and link.kind in _KINDS
        if ours and (int(process) == os.getpid() or not os.path.exists(f"/proc/{process}")):
            control.remove_link(link.index)


def _add(control: TrafficControl, name: str) -> tuple[int, str]:
    """(index, kind) of a device to try it on."""
    problem = OSError(errno.EOPNOTSUPP, "no kind of device to try it on")
    for kind in _KINDS:
        try:
            return control.add_link(name, kind), kind
        except OSError as error:
            problem = error
    raise problem


def _shape(control: TrafficControl, index: int) -> str:
    control.add_root(index, 2)
    control.set_class(index, HtbClass(1, 0, 10**6, 10**6))
    control.set_class(index, HtbClass(2, 1, 10**6, 10**6))
    for address in ("192.0.2.1", "2001:db8::1"):
        control.add_match(index, SOURCE, Match(address, 2))
    return "a device took an HTB class with matches by IPv4 and IPv6 address"


def _redirect(control: TrafficControl, index: int, kind: str) -> str:
    if kind != "ifb":
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), "device of kind ifb")
    control.add_ingress(index)
    control.redirect(index, index)
    return "arriving packets can be sent through an ifb device"


def _try_tables(tables: NetFilter) -> dict[str, str | OSError]:
    with contextlib.suppress(OSError):  # of a probe that was killed
        tables.remove()
    try:
        tables.make(dormant=True)
    except OSError as error:
        return dict.fromkeys((MARKS, HOST_SOCKETS, NET_CLS_MARKS), error)
    nothing = Marks({})

    def set_marks(marks: Marks, answer: str) -> str:
        tables.change(marks, nothing)
        tables.change(nothing, marks)
        return answer

    try:
        sockets = Marks({}, (SocketMark(1, 1, 2),))
        return {
            MARKS: "nftables took a map from address to priority",
            HOST_SOCKETS: _attempt(lambda: set_marks(sockets, "nftables took socket cgroupv2")),
            NET_CLS_MARKS: _attempt(
                lambda: set_marks(Marks({}, net_cls=True), "nftables took meta cgroup")
            ),
        }
    finally:
        tables.remove()


def _attempt(attempt: Callable[[], str]) -> str | OSError:
    try:
        return attempt()
    except OSError as error:
        return error


def _capability(feature: str, answer: str | OSError) -> Capability:
    if isinstance(answer, str):
        return Capability(feature, True, answer)
    name = errno.errorcode.get(answer.errno or 0, str(answer.errno))
    why = f"{answer.filename or feature}: {name} ({answer.strerror})"
    return Capability(feature, False, why, _COST[feature], _REMEDY[feature])
