"""What hooks want, as NRI messages (docs/reference/wire.md 2.7,
docs/reference/hooks.md 3.3). Imports protobuf.

To set a field is to claim it: another plugin that sets the same one makes the container fail. So
only what differs from what the container has already is set.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from koordlet.decision.answer import Combined
from koordlet.decision.resource import UNLIMITED, Value
from koordlet.decision.strategy import Device, EnvVar, Mount
from koordlet.hooks.delivery import nri_fields
from koordlet.nri import fields
from koordlet.state.merge import bare_id
from koordlet.wire.pb import nri_pb2 as pb


def adjustment(combined: Combined, container: Any) -> Any | None:
    """``ContainerAdjustment`` for ``container``, which is yet to be created; None: nothing to
    change. Raises ValueError for a value that its field cannot hold."""
    found = pb.ContainerAdjustment()
    for path, value in nri_fields(combined).items():
        if _changes(path, value, fields.read(container.linux, path)):
            fields.write(found.linux, path, value)
    found.env.extend(_env(combined.env, container.env))
    found.mounts.extend(_mounts(combined.mounts, container.mounts))
    devices = _devices(combined.devices, container.linux.devices)
    if devices:
        found.linux.devices.extend(devices)
    return found if found.ByteSize() else None


def answer_to_update(combined: Combined, container: Any, resources: Any) -> Any | None:
    """``ContainerUpdate`` for an update of ``container`` to ``resources``, where those leave open
    what they do not name; None: nothing to change. Raises ValueError as ``adjustment`` does."""
    asked = pb.LinuxContainerUpdate(resources=resources)
    wanted = {}
    for path, value in nri_fields(combined, update=True).items():
        # Zero: kubelet left it open, and the runtime keeps what it has stored.
        coming = fields.read(asked, path) or fields.read(container.linux, path)
        if _changes(path, value, coming):
            wanted[path] = value
    return _update(container.id, wanted)


def update(container_id: str, combined: Combined) -> Any | None:
    """``ContainerUpdate`` that nobody asked for. ``container_id`` with or without a scheme."""
    wanted = {p: v for p, v in nri_fields(combined, update=True).items() if v != ""}
    return _update(bare_id(container_id), wanted)


def _changes(path: str, value: Value, current: Value | None) -> bool:
    """An empty string would leave a field as it is. No limit is what no value means."""
    if value == UNLIMITED and path.startswith(fields.RESOURCES) and not current:
        return False
    return value not in ("", current)


def _update(bare: str, wanted: dict[str, Value]) -> Any | None:
    """With the id of the container: without it runtimes ignore an update silently."""
    if not wanted:
        return None
    found = pb.ContainerUpdate(container_id=bare)
    for path, value in wanted.items():
        fields.write(found.linux, path, value)
    return found


def _env(wanted: Iterable[EnvVar], given: Iterable[str]) -> list[Any]:
    has = dict(each.partition("=")[::2] for each in given)
    return [pb.KeyValue(key=e.name, value=e.value) for e in wanted if has.get(e.name) != e.value]


def _mounts(wanted: Iterable[Mount], given: Iterable[Any]) -> list[Any]:
    has = {(each.destination, each.source) for each in given}
    return [
        pb.Mount(destination=m.destination, type="bind", source=m.source, options=m.options)
        for m in wanted
        if (m.destination, m.source) not in has
    ]


def _devices(wanted: Iterable[Device], given: Iterable[Any]) -> list[Any]:
    has = {(each.path, each.major, each.minor) for each in given}
    return [
        pb.LinuxDevice(
            path=device.node.path,
            type="c",
            major=device.node.major,
            minor=device.node.minor,
            file_mode=pb.OptionalFileMode(value=device.file_mode),
        )
        for device in wanted
        if (device.node.path, device.node.major, device.node.minor) not in has
    ]
