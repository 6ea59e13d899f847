"""RDMA devices and their counters from sysfs (docs/reference/metrics.md 2.15; D-14 mended. Linux
``Documentation/ABI/stable/sysfs-class-infiniband``).

A driver may have to ask its card's firmware for a file, which can hang for seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from koordlet.decision.devices import HEALTHY, Health, Place, RdmaDevice, RdmaPort, State
from koordlet.kernel.cgroup.forms import parse_int
from koordlet.kernel.devices.outcomes import class_directory
from koordlet.kernel.devices.pci import place, virtual_functions
from koordlet.kernel.host import Host

MOST_DEVICES = 64
"""Physical functions with RDMA. The largest machines have 16 cards of two ports."""
MOST_PORTS = 4
MOST_COUNTERS = 64
"""Of one port; cards have up to 50."""
_WORD_BYTES = 4
"""The unit of the two counters of data (InfiniBand Architecture Specification, PortCounters)."""
_ERRORS = (
    "symbol_error",
    "link_downed",
    "port_rcv_errors",
    "port_xmit_discards",
    "port_xmit_wait",
)
"""Counters of the port itself: errors, and waits on a congested link."""
_ACTIVE = "ACTIVE"

T = TypeVar("T")


class PortCounters(NamedTuple):
    """Since the driver was loaded. ``received_bytes``, ``sent_bytes``: None where the driver does
    not count them. ``others``: by their own names, errors of the port and all that the driver
    counts."""

    device: str
    port: int
    received_bytes: int | None
    sent_bytes: int | None
    others: dict[str, int]


class _Found(NamedTuple):
    name: str
    directory: str
    place: Place


def read_devices(host: Host, sys_root: str = "/sys") -> tuple[RdmaDevice, ...]:
    """Physical functions, and devices in software, sorted by minor. Raises OSError."""
    base = class_directory(sys_root)
    functions: dict[str, _Found] = {}
    for name in sorted(host.listdir(base)):
        directory = f"{base}/{name}"
        if host.exists(f"{directory}/device/physfn"):
            continue  # a virtual function stands with its physical one
        found = _Found(name, directory, place(host, f"{directory}/device"))
        # Of a function with several RDMA devices the first name stands for all.
        functions.setdefault(found.place.bus_id or name, found)
    chosen = list(functions.values())[:MOST_DEVICES]
    minors = number({each.name: each.place.bus_id for each in chosen})
    devices = (_device(host, each, minors[each.name]) for each in chosen)
    return tuple(sorted(devices, key=lambda each: each.minor))


def number(addresses: Mapping[str, str]) -> dict[str, int]:
    """A minor for each name. ``addresses``: name -> PCI address.

    ``mlx5_2`` has the number in its name, as in the reference, which knows no other names; where
    two have the same, the later generation keeps it. All others are counted on from there in the
    order of their addresses: udev may have named them after these.
    """
    taken: dict[int, str] = {}
    for name in sorted(addresses, reverse=True):
        own = _number_in(name)
        if own is not None:
            taken.setdefault(own, name)
    found = {name: own for own, name in taken.items()}
    others = sorted(
        addresses.keys() - found.keys(),
        key=lambda name: (not addresses[name], addresses[name], name),  # those in software last
    )
    first = max(taken, default=-1) + 1
    return found | {name: first + index for index, name in enumerate(others)}


def read_counters(host: Host, device: RdmaDevice, sys_root: str = "/sys") -> list[PortCounters]:
    """Of each port. What a driver does not count, or refuses to give, is left out."""
    found = []
    for port in device.ports:
        directory = f"{class_directory(sys_root)}/{device.name}/ports/{port.number}"
        received = _counter(host, f"{directory}/counters/port_rcv_data")
        sent = _counter(host, f"{directory}/counters/port_xmit_data")
        found.append(
            PortCounters(
                device.name,
                port.number,
                None if received is None else received * _WORD_BYTES,
                None if sent is None else sent * _WORD_BYTES,
                dict(_others(host, directory)),
            )
        )
    return found


def _others(host: Host, port: str) -> Iterator[tuple[str, int]]:
    hardware = f"{port}/hw_counters"
    for name in _ERRORS:
        value = _counter(host, f"{port}/counters/{name}")
        if value is not None:
            yield name, value
    names = [name for name in _listed(host, hardware) if name != "lifespan"]  # that is a setting
    for name in names[:MOST_COUNTERS]:
        value = _counter(host, f"{hardware}/{name}")
        if value is not None:
            yield name, value


def _device(host: Host, found: _Found, minor: int) -> RdmaDevice:
    names = sorted(filter(str.isdigit, _listed(host, f"{found.directory}/ports")), key=int)
    ports = tuple(_port(host, found.directory, name) for name in names[:MOST_PORTS])
    return RdmaDevice(
        name=found.name,
        minor=minor,
        place=found.place,
        ports=ports,
        virtual_functions=virtual_functions(host, f"{found.directory}/device"),
        network_devices=tuple(_listed(host, f"{found.directory}/device/net")[:MOST_PORTS]),
        health=_health(ports),
    )


def _port(host: Host, directory: str, name: str) -> RdmaPort:
    path = f"{directory}/ports/{name}"
    return RdmaPort(
        number=int(name),
        state=_text(host, f"{path}/state").rpartition(":")[2].strip() or "unknown",
        rate=_text(host, f"{path}/rate"),
        link_layer=_text(host, f"{path}/link_layer"),
    )


def _health(ports: tuple[RdmaPort, ...]) -> Health:
    """Every port must be active."""
    down = [f"port {each.number} is {each.state}" for each in ports if each.state != _ACTIVE]
    if down or not ports:
        return Health(State.UNHEALTHY, "PortNotActive", "; ".join(down) or "it has no port")
    return HEALTHY


def _text(host: Host, path: str) -> str:
    return _read(lambda: host.read(path).decode(errors="replace").strip(), "")


def _counter(host: Host, path: str) -> int | None:
    return _read(lambda: parse_int(host.read(path)), None)


def _listed(host: Host, directory: str) -> list[str]:
    """What cannot be listed is left out of a reading (hooks need to know: ``kernel/verbs.py``)."""
    return _read(lambda: host.listdir(directory), [])


def _read(what: Callable[[], T], otherwise: T) -> T:
    """``otherwise`` for what this driver does not have, or what goes while it is read."""
    try:
        return what()
    except (OSError, ValueError):
        return otherwise


def _number_in(name: str) -> int | None:
    """2 of ``mlx5_2``."""
    generation, _, digits = name.removeprefix("mlx").partition("_")
    is_number = name.startswith("mlx") and generation.isdigit() and digits.isdigit()
    return int(digits) if is_number and len(digits) < 5 else None
