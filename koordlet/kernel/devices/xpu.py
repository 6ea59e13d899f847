"""Accelerators that a device daemon describes in files
(docs/reference/metrics.md 2.15, protocol.md 3.3)."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import NamedTuple

from koordlet.decision.devices import HEALTHY, Health, Link, Place, State, Xpu
from koordlet.kernel.host import Host
from koordlet.protocol.decode import decode_limited
from koordlet.protocol.document import parse_limited
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.objects import device as shape
from koordlet.protocol.quantity import Quantity, parse_quantity
from koordlet.protocol.resources import GPU_CORE, GPU_MEMORY

MOST_FILES = 32
MOST_BYTES = 256 << 10
"""Of one file: 64 devices of 4 KiB."""
MOST_VALUES = 8192
"""Elements and members of its JSON, in all levels."""
MOST_DEVICES = 64
MOST_NUMBER = 4095
_OWN_NAMES = {"gpu-core": GPU_CORE, "gpu-memory": GPU_MEMORY}
"""Names that files use without their domain."""


class XpuFiles(NamedTuple):
    """``refused``: file and fault, of what cannot be read; the rest counts."""

    xpus: tuple[Xpu, ...]
    refused: tuple[str, ...]


NOTHING = XpuFiles((), ())


class XpuReader:
    """Parses a file when its content has changed."""

    def __init__(self, host: Host, directory: str) -> None:
        self._host = host
        self._directory = directory
        self._known: dict[str, tuple[bytes, XpuFiles]] = {}

    def read(self) -> XpuFiles:
        """Sorted by uuid. Without the directory there are none. Raises OSError."""
        try:
            names = self._host.listdir(self._directory)
        except FileNotFoundError:
            self._known = {}
            return NOTHING
        refused = []
        if len(names) > MOST_FILES:
            refused.append(f"{self._directory}: more than {MOST_FILES} files; the others not read")
        known, self._known = self._known, {}
        for name in names[:MOST_FILES]:
            path = f"{self._directory}/{name}"
            try:
                data = self._host.read_ordinary(path, MOST_BYTES)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EINVAL):  # gone; no ordinary file
                    refused.append(f"{path}: {error.strerror}")
                continue
            before = known.get(path)
            same = before is not None and before[0] == data
            self._known[path] = before if before and same else (data, parse(data, path))
        found: dict[str, Xpu] = {}
        for _, files in self._known.values():
            refused += files.refused
            for xpu in files.xpus:
                if xpu.uuid in found:
                    refused.append(f"{self._directory}: {xpu.uuid} stands there twice")
                found.setdefault(xpu.uuid, xpu)
        ordered = tuple(found[uuid] for uuid in sorted(found))
        if len(ordered) > MOST_DEVICES:
            refused.append(f"{self._directory}: more than {MOST_DEVICES} devices")
        return XpuFiles(ordered[:MOST_DEVICES], tuple(refused))


def parse(data: bytes, path: str) -> XpuFiles:
    """An array of devices. What is wrong with one refuses that one alone."""
    try:
        tree, _ = parse_limited(data.decode(), MOST_VALUES)
    except UnicodeDecodeError as error:
        return XpuFiles((), (f"{path}: byte {error.start} is not UTF-8",))
    except ProtocolError as error:
        return XpuFiles((), (f"{path}: {error}",))
    if not isinstance(tree, list):
        return XpuFiles((), (f"{path}: not a list of devices",))
    found, refused = [], []
    for index, each in enumerate(tree[:MOST_DEVICES]):
        try:
            xpu, faults = _xpu(decode_limited(shape.XpuInfo, each))
        except ProtocolError as error:
            refused.append(f"{path}: device {index}: {error}")
            continue
        found.append(xpu)
        refused += [f"{path}: device {index}: {fault}" for fault in faults]
    return XpuFiles(tuple(found), tuple(refused))


def _xpu(info: shape.XpuInfo) -> tuple[Xpu, list[str]]:
    """With what is left out of it. Raises ProtocolError for what no device can do without."""
    if not info.uuid:
        raise ProtocolError("it has no uuid")
    topology = info.topology
    amounts, faults = _amounts(info.resources)
    xpu = Xpu(
        uuid=info.uuid,
        minor=_number("minor", info.minor),
        vendor=info.vendor,
        model=info.model,
        resources=amounts,
        place=_place(topology) if topology is not None else None,
        links=_links(topology) if topology is not None else (),
        links_are_binding=topology is not None and topology.must_honor_partition,
        health=_health(info.status),
    )
    return xpu, faults


def _number(field: str, text: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) < 5) or int(digits) > MOST_NUMBER:
        raise ProtocolError(f"{field} {text!r} is not a number up to {MOST_NUMBER}")
    return int(digits)


def _amounts(resources: Mapping[str, str]) -> tuple[dict[str, Quantity], list[str]]:
    amounts, faults = {}, []
    for name, text in resources.items():
        try:
            amount = parse_quantity(text)
        except ProtocolError as error:
            faults.append(f"resources.{name}: {error}")
            continue
        if amount.nano < 0:
            faults.append(f"resources.{name}: {text} is negative")
            continue
        amounts[_OWN_NAMES.get(name, name)] = amount
    return amounts, faults


def _place(topology: shape.XpuTopology) -> Place:
    text = topology.node_id
    node = None if text in ("", "-1") else _number("topology.nodeID", text)
    return Place(topology.bus_id, topology.pcie_id, node)


def _links(topology: shape.XpuTopology) -> tuple[Link, ...]:
    field = "topology.p2pLinks.peerMinor"
    return tuple(
        Link(
            tuple(sorted({_number(field, each) for each in link.peer_minor.split(",")})), link.type
        )
        for link in topology.p2p_links
        if link.peer_minor
    )


def _health(status: shape.XpuStatus | None) -> Health:
    """Without a status it is not known, and counts as working, as in the reference."""
    if status is None:
        return Health(why="its file does not say")
    if status.healthy:
        return HEALTHY
    return Health(State.UNHEALTHY, status.err_code or "Unknown", status.err_message)
