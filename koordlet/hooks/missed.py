"""What a container should have been created with but was not. Pure.

Variables, devices and mounts reach a container only while it is created. One that started while
koordlet could not be asked lacks them until it is recreated.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from koordlet.decision.answer import Combined
from koordlet.decision.given import VISIBLE_GPUS, Given
from koordlet.decision.strategy import Device, EnvVar, Mount
from koordlet.decision.why import Why

_NO_GPU = frozenset({"", "void", "none"})
"""Values of NVIDIA_VISIBLE_DEVICES for which the container gets no device."""


class Creation(msgspec.Struct, frozen=True):
    """What hooks want to give a container when it is created."""

    env: tuple[EnvVar, ...] = ()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[Device, ...] = ()


class Missed(msgspec.Struct, frozen=True):
    """``kind``: ``env``, ``mount`` or ``device``; ``has`` None: nothing. ``exceeds``: with what it
    has it sees devices that are not its own."""

    kind: str
    name: str
    wanted: str
    has: str | None
    why: Why
    exceeds: bool = False

    @property
    def hook(self) -> str:
        return self.why.rule.partition(".")[0]


def creation(combined: Combined) -> Creation | None:
    """None: nothing that a container can get only at its creation."""
    if not (combined.env or combined.mounts or combined.devices):
        return None
    return Creation(combined.env, combined.mounts, combined.devices)


def missed(wanted: Creation, given: Given) -> tuple[Missed, ...]:
    return tuple(_missed(wanted, given))


def has(kind: str, name: str, given: Given) -> str | None:
    """What the container has of that name; None: nothing, or it is not known."""
    if kind == "env":
        return given.env.get(name)
    if kind == "device":
        return (given.devices or {}).get(name)
    return name if name in (given.mounts or ()) else None


def _missed(wanted: Creation, given: Given) -> Iterator[Missed]:
    for env in wanted.env:
        found = given.env.get(env.name)
        if not _same(env, found):
            exceeds = env.name == VISIBLE_GPUS and sees_more(env, found)
            yield Missed("env", env.name, env.value, found, env.why, exceeds)
    if given.devices is not None:
        for device in wanted.devices:
            node = device.node
            numbers, found = f"{node.major}:{node.minor}", given.devices.get(node.path)
            if found != numbers:
                yield Missed("device", node.path, numbers, found, device.why)
    if given.mounts is not None:
        for mount in wanted.mounts:
            if mount.destination not in given.mounts:
                yield Missed("mount", mount.destination, mount.source, None, mount.why)


def sees_more(wanted: EnvVar, found: str | None) -> bool:
    """Whether a container with ``NVIDIA_VISIBLE_DEVICES=found`` sees GPUs that are not its own.

    Without the variable NVIDIA's runtime shows all GPUs to images of old CUDA versions, and as a
    rule images set ``all`` themselves, so absent counts as ``all``.
    """
    if found is None:
        return True
    if found.strip() in _NO_GPU:
        return False
    own = _names(wanted.value) | set(wanted.aliases)
    # A part of a GPU (MIG) is written as GPU:part.
    return any(name not in own and name.partition(":")[0] not in own for name in _names(found))


def _same(wanted: EnvVar, found: str | None) -> bool:
    if found is None or wanted.name != VISIBLE_GPUS:
        return found == wanted.value
    names, own = _names(found), _names(wanted.value)
    return names == own or (len(names) == len(own) and names == set(wanted.aliases))


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",")}
