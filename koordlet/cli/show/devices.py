"""``koordlet devices``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from koordlet.admin.devices import DevicesView, DeviceUserView, DeviceView
from koordlet.cli import output
from koordlet.cli.connect import connect
from koordlet.cli.main import Exit

_UNHEALTHY, _UNKNOWN = "unhealthy", "unknown"


def main(args: argparse.Namespace) -> int:
    """1 when one of them does not work."""
    with connect(args) as client:
        view = client.devices()
    output.emit(view, args.output, lambda: lines(view))
    broken = any(each.health == _UNHEALTHY for each in view.devices)
    return Exit.BAD if broken else Exit.OK


def lines(view: DevicesView) -> list[str]:
    """All devices, then who uses them, and what there is to say of each kind."""
    missing = [f"{each.feature}: {each.why}" for each in view.capabilities if not each.supported]
    if not view.devices:
        found = ["no devices"]
    else:
        found = [*_devices(view), *output.section("Users", _users(view))]
        found += output.section("Parts", _parts(view))
        found += output.section("Ports", _ports(view))
    found += output.section("What does not work", [output.clean(each) for each in _faults(view)])
    found += output.section("Health not known", [output.clean(each) for each in _doubts(view)])
    found += output.section("Not here", [output.clean(each) for each in missing])
    return [*found, *output.section("Refused", [output.clean(each) for each in view.refused])]


def _devices(view: DevicesView) -> list[str]:
    return output.columns(
        ("DEVICE", "ID", "NAME", "HEALTH", ">CORE", ">USED", ">MEMORY", "PCI", "ROOT", ">NUMA"),
        (
            (
                title(each),
                each.id,
                each.name,
                each.health,
                output.percent(each.core_percent),
                output.size(each.used_bytes),
                output.size(each.memory_bytes),
                each.bus_id,
                each.pcie_root,
                output.NOTHING if each.numa_node is None else str(each.numa_node),
            )
            for each in view.devices
        ),
    )


def title(device: DeviceView) -> str:
    return f"{device.type} {device.minor}"


def _users(view: DevicesView) -> list[str]:
    rows = [
        (
            title(device),
            user.kind,
            _name(user),
            user.container,
            str(user.processes),
            output.percent(user.core_percent),
            output.size(user.memory_bytes),
            user.part,
        )
        for device in view.devices
        for user in device.users
    ]
    header = ("DEVICE", "KIND", "NAME", "CONTAINER", ">PROCESSES", ">CORE", ">MEMORY", "PART")
    return output.columns(header, rows) if rows else []


def _name(user: DeviceUserView) -> str:
    return f"{user.namespace}/{user.name}" if user.namespace else user.name


def _parts(view: DevicesView) -> list[str]:
    rows = [
        (
            title(device),
            part.id,
            part.model,
            output.size(part.used_bytes),
            output.size(part.memory_bytes),
        )
        for device in view.devices
        for part in device.parts
    ]
    return output.columns(("DEVICE", "ID", "NAME", ">USED", ">MEMORY"), rows) if rows else []


def _ports(view: DevicesView) -> list[str]:
    rows = [
        (
            title(device),
            str(port.number),
            port.state,
            _rate(port.received_bytes_per_s),
            _rate(port.sent_bytes_per_s),
            " ".join(device.network_devices),
            str(len(device.virtual_functions)),
            " ".join(filter(None, (port.link_layer, port.rate))),
        )
        for device in view.devices
        for port in device.ports
    ]
    header = ("DEVICE", ">PORT", "STATE", ">RECEIVES", ">SENDS", "NETWORK", ">FUNCTIONS", "LINK")
    return output.columns(header, rows) if rows else []


def _rate(bytes_per_s: float | None) -> str:
    return output.NOTHING if bytes_per_s is None else f"{output.size(bytes_per_s)}/s"


def _faults(view: DevicesView) -> Iterator[str]:
    for each in view.devices:
        if each.health == _UNHEALTHY:
            since = f", since {output.date(each.since)}" if each.since is not None else ""
            yield f"{title(each)}: {each.why or 'it does not say why'}{since}"


def _doubts(view: DevicesView) -> Iterator[str]:
    for each in view.devices:
        if each.health == _UNKNOWN and each.why:
            yield f"{title(each)}: {each.why}"
