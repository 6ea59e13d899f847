"""RDMA devices that the scheduler gave to a pod (docs/reference/hooks.md 2.7).

Only a runtime that creates a container can give it devices; reconciling cannot.
"""

from __future__ import annotations

from collections.abc import Iterator

from koordlet.decision.options import DEFAULTS, Options
from koordlet.decision.snapshot import RDMA_CM, Snapshot
from koordlet.decision.strategy import Adjustment, Device, Hook, Level, Stage, Subject
from koordlet.decision.why import Input, Why
from koordlet.protocol import keys
from koordlet.protocol.annotation_types import DeviceAllocation

NAME = "rdma-devices"


def _evaluate(subject: Subject, snapshot: Snapshot, _: Options) -> Adjustment:
    pod = subject.pod
    allocated = keys.DEVICE_ALLOCATED.read(pod.annotations) if pod is not None else None
    addresses = tuple(_addresses((allocated or {}).get("rdma", ())))
    if pod is None or not addresses:
        return Adjustment()
    text = f"the scheduler gave the pod {', '.join(addresses)}"
    why = Why("rdma-devices.devices", text, (Input(keys.DEVICE_ALLOCATED.name, len(addresses)),))
    found, notes = [], []
    for address in (RDMA_CM, *addresses):
        node = snapshot.node.verbs_devices.get(address)
        if node is not None:
            found.append(Device(node, why))
            continue
        what = "the RDMA connection manager (module rdma_ucm)"
        if address != RDMA_CM:
            what = f"a verbs device of PCI address {address or '(empty)'} (module ib_uverbs)"
        notes.append(Why("rdma-devices.missing", f"{pod.title}: this node does not have {what}"))
    return Adjustment(devices=tuple(found), notes=tuple(notes))


def _addresses(devices: tuple[DeviceAllocation, ...]) -> Iterator[str]:
    """PCI addresses as sysfs writes them; the virtual functions stand for their device."""
    for device in devices:
        functions = device.extension.vfs if device.extension is not None else ()
        for address in [vf.bus_id for vf in functions] or [device.id or device.bus_id]:
            yield address.lower()


HOOK = Hook(
    name=NAME,
    help="RDMA devices that were allocated to a pod.",
    options=DEFAULTS,
    levels=(Level.CONTAINER,),
    function=_evaluate,
    stages=(Stage.CREATE_CONTAINER,),
)
