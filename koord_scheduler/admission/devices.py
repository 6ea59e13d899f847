"""What a container may ask of accelerators, and its normal form
(docs/reference/protocol.md 3.2, 6.2)."""

from __future__ import annotations

from koord_scheduler.admission.pods import (
    amounts_of,
    containers,
    part_of_resources,
    quantity,
)
from koord_scheduler.admission.words import Step, Tree
from koordlet.protocol.quantity import NANO, Quantity
from koordlet.protocol.resources import (
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARE,
    GPU_SHARED,
)

NPU_CORE = "huawei.com/npu-core"
_SHARES = (GPU_SHARE, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED)
_CARD = 100
"""Percent of one card."""


def write_device_shares(pod: Tree, steps: list[Step]) -> None:
    """``koordinator.sh/gpu`` becomes cores and memory, and everybody who asks for a share says over
    how many cards. Raises AdmissionError for a quantity that is none."""
    for container in containers(pod):
        asked = amounts_of(container, "requests")
        if not any(name in asked for name in _SHARES):
            continue
        where = f"container {container['name']}"
        if GPU_SHARE in asked:
            whole = str(asked[GPU_SHARE])
            for kind in ("requests", "limits"):
                amounts = part_of_resources(container, kind)
                amounts.pop(GPU_SHARE, None)
                amounts[GPU_CORE] = amounts[GPU_MEMORY_RATIO] = whole
            steps.append(
                Step("devices", f"{where}: {GPU_SHARE}", whole, f"{GPU_CORE}, {GPU_MEMORY_RATIO}")
            )
        asked = amounts_of(container, "requests")
        if GPU_SHARED not in asked:
            cards = str(_cards(container, where))
            for kind in ("requests", "limits"):
                part_of_resources(container, kind)[GPU_SHARED] = cards
            steps.append(Step("devices", f"{where}: {GPU_SHARED}", None, cards))


def _cards(container: Tree, where: str) -> int:
    asked = amounts_of(container, "requests")
    name = GPU_MEMORY_RATIO if GPU_MEMORY_RATIO in asked else GPU_CORE
    if name not in asked:
        return 1
    percent = quantity(asked[name], f"{where}: request of {name}").value
    return percent // _CARD if percent > _CARD and percent % _CARD == 0 else 1


def device_refusal(pod: Tree) -> str:
    """Why no node could give a container what it asks for; empty where nothing is wrong. Raises
    AdmissionError for a quantity that is none."""
    for container in containers(pod):
        where = f"container {container['name']}"
        asked = {
            name: quantity(value, f"{where}: request of {name}")
            for name, value in amounts_of(container, "requests").items()
            if name in (*_SHARES, NPU_CORE)
        }
        if why := _refusal(asked):
            return f"{where}: {why}"
    return ""


def _refusal(asked: dict[str, Quantity]) -> str:
    if GPU_SHARE in asked and GPU_SHARED in asked:
        return f"asks for {GPU_SHARE} and {GPU_SHARED}, which exclude each other"
    if GPU_SHARE in asked:
        percent = asked[GPU_SHARE].value
        if percent <= 0 or (percent > _CARD and percent % _CARD):
            return f"{GPU_SHARE} is {percent}, must be above 0 and, above 100, a multiple of 100"
    if GPU_SHARED not in asked:
        return ""
    cards = asked[GPU_SHARED].value
    if cards <= 0 or asked[GPU_SHARED].nano % NANO:
        return f"{GPU_SHARED} is {asked[GPU_SHARED]}, must be a whole number above 0"
    if NPU_CORE not in asked and (GPU_MEMORY in asked) == (GPU_MEMORY_RATIO in asked):
        return f"{GPU_SHARED} needs either {GPU_MEMORY} or {GPU_MEMORY_RATIO}"
    for name in (GPU_CORE, GPU_MEMORY_RATIO):
        if name in asked and asked[name].value % cards:
            return f"{name} is {asked[name]}, must be a multiple of {GPU_SHARED} ({cards})"
    return ""
