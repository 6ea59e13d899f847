"""Native resources of batch and mid pods under the names of their tier, and what the node learns
of them (docs/reference/protocol.md 1.3, 6.2)."""

from __future__ import annotations

from typing import Any

import msgspec

from koord_scheduler.admission.pods import (
    Amounts,
    all_containers,
    amounts_of,
    annotations_of,
    containers,
    part_of_resources,
    priority_class_of,
    quantity,
    set_annotation,
)
from koord_scheduler.admission.words import AdmissionError, Step, Tree
from koordlet.protocol import keys
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.qos import PriorityClass
from koordlet.protocol.quantity import NANO, Format, Quantity
from koordlet.protocol.resources import (
    BATCH_CPU,
    BATCH_MEMORY,
    CPU,
    MEMORY,
    TIER_NAMES,
    tier_amount,
)

BY = "resource translation"
_TRANSLATED = (PriorityClass.BATCH, PriorityClass.MID)


def translate_resources(pod: Tree, steps: list[Step]) -> None:
    """Of a batch or mid pod; others stay as they are. Raises AdmissionError for a quantity that is
    none."""
    cls = priority_class_of(pod)
    if cls not in _TRANSLATED:
        return
    names = TIER_NAMES[cls]
    for container in all_containers(pod):
        where = f"container {container['name']}"
        for kind in ("requests", "limits"):
            if amounts_of(container, kind):
                amounts = part_of_resources(container, kind)
                _rename(amounts, names, f"{where}: {kind}", steps)
        for name in names.values():
            limit = amounts_of(container, "limits").get(name)
            if limit is not None and name not in amounts_of(container, "requests"):
                part_of_resources(container, "requests")[name] = limit
                steps.append(Step(BY, f"{where}: requests of {name}", None, str(limit)))
    # The API server compares the overhead with that of the RuntimeClass once more, after us, and
    # refuses the pod where they differ.
    if pod["spec"].get("overhead") and not pod["spec"].get("runtimeClassName"):
        _rename(pod["spec"]["overhead"], names, "overhead", steps)


def drop_native_again(pod: Tree, steps: list[Step]) -> None:
    """Of a batch or mid pod whose containers have the resources of their tier: native ones beside
    them are defaults of the namespace (LimitRange), which the API server fills in once more after
    the translation."""
    cls = priority_class_of(pod)
    if cls not in _TRANSLATED:
        return
    for container in all_containers(pod):
        for native, name in TIER_NAMES[cls].items():
            if not any(name in amounts_of(container, kind) for kind in ("requests", "limits")):
                continue
            for kind in ("requests", "limits"):
                if native in amounts_of(container, kind):
                    gone = str(part_of_resources(container, kind).pop(native))
                    where = f"container {container['name']}: {kind} of {native}"
                    steps.append(Step(BY, where, gone, None))


def _rename(amounts: Amounts, names: dict[str, str], where: str, steps: list[Step]) -> None:
    for native in (CPU, MEMORY):
        if native not in amounts:
            continue
        given = quantity(amounts[native], f"{where} of {native}")
        form = Format.DECIMAL if native == CPU else given.format
        value = str(Quantity(tier_amount(native, given) * NANO, form))
        before = amounts.pop(native)
        amounts[names[native]] = value
        steps.append(Step(BY, f"{where} of {native}", str(before), f"{value} of {names[native]}"))


def write_extended_resources(pod: Tree, steps: list[Step]) -> None:
    """The annotation by which a runtime hook knows what a container asks for where kubelet does not
    tell it. Raises AdmissionError for one that cannot be read."""
    key = keys.EXTENDED_RESOURCE_SPEC
    found: dict[str, dict[str, dict[str, Quantity]]] = {}
    for container in containers(pod):
        kinds = {kind: _batch(container, kind) for kind in ("requests", "limits")}
        kinds = {kind: amounts for kind, amounts in kinds.items() if amounts}
        if kinds:
            found[container["name"]] = kinds
    before = annotations_of(pod).get(key.name)
    try:
        known = key.read(annotations_of(pod))
    except ProtocolError as error:
        raise AdmissionError(f"annotation {error}") from None
    has = {
        name: {
            kind: amounts
            for kind, amounts in (("requests", each.requests), ("limits", each.limits))
            if amounts
        }
        for name, each in (known.containers if known else {}).items()
    }
    if has == found:
        return
    texts: dict[str, Any] = {"containers": _texts(found)} if found else {}
    after = msgspec.json.encode(texts, order="sorted").decode()
    if before != after:
        set_annotation(pod, key.name, after)
        steps.append(Step("extended resource spec", f"annotation {key.name}", before, after))


def _batch(container: Tree, kind: str) -> dict[str, Quantity]:
    amounts = amounts_of(container, kind)
    return {
        name: quantity(amounts[name], f"container {container['name']}: {kind} of {name}")
        for name in (BATCH_CPU, BATCH_MEMORY)
        if name in amounts
    }


def _texts(tree: Any) -> Any:
    if isinstance(tree, Quantity):
        return str(tree)
    return {key: _texts(each) for key, each in tree.items()}
