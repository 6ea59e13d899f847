"""Fields of NRI messages by path, such as ``resources.cpu.shares``. Imports no protobuf itself."""

from __future__ import annotations

from typing import Any

from koordlet.decision.resource import Resource, Value
from koordlet.hooks.delivery import FIELDS

PATHS: dict[Resource, str] = {
    resource: fields.nri for resource, fields in FIELDS.items() if fields.nri
}
RESOURCES = "resources."
"""The beginning of every path below ``LinuxResources``."""


def read(message: Any, path: str) -> Value | None:
    """None when it is not set: no wrapper, or an empty string where there is none."""
    for name in path.split("."):
        inner = getattr(message, name)
        if hasattr(inner, "DESCRIPTOR") and not message.HasField(name):
            return None
        message = inner
    value: Value = message.value if hasattr(message, "DESCRIPTOR") else message
    return None if value == "" else value


def write(message: Any, path: str, value: Value) -> None:
    """Raises ValueError or TypeError, with the path, for a value that the field cannot hold."""
    *parents, last = path.split(".")
    for name in parents:
        message = getattr(message, name)
    field = getattr(message, last)
    try:
        if hasattr(field, "DESCRIPTOR"):
            field.SetInParent()  # the wrapper alone says "set", also for a value of zero
            field.value = value
        else:
            setattr(message, last, value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}: {value!r}: {error}") from None


def requested(linux: Any) -> dict[Resource, Value]:
    """Return what a ``LinuxContainer`` asks for."""
    found = requested_of(linux.resources)
    for resource, path in PATHS.items():
        if not path.startswith(RESOURCES) and (value := read(linux, path)) is not None:
            found[resource] = value
    return found


def requested_of(resources: Any) -> dict[Resource, Value]:
    """Return what ``LinuxResources`` ask for. Runtimes send 0 for what kubelet left open."""
    found = {}
    for resource, path in PATHS.items():
        if path.startswith(RESOURCES) and (value := read(resources, path[len(RESOURCES) :])):
            found[resource] = value
    return found
