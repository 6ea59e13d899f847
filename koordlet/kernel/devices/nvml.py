"""NVIDIA's management library by ctypes: the functions that koordlet calls (NVML API reference).

Every call may hang for as long as the driver does, so none is made on the event loop. ctypes lets
other threads run meanwhile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from ctypes import byref, c_char_p, c_uint, c_ulonglong, c_void_p
from itertools import chain
from typing import NamedTuple, TypeVar

from koordlet.kernel.devices import nvml_abi as abi
from koordlet.kernel.devices.nvml_abi import Code

MOST_ENTRIES = 4096
"""Of one list that the library returns. A card has some hundreds of processes at most."""
_ATTEMPTS = 3
"""A list may have grown between the call that asks for its length and the one that fetches it."""
_ROOM = 8
LACKING = frozenset({Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND})
"""What a card or a driver says of a function that it does not have."""
KINDS = ("Compute", "Graphics", "MPSCompute")
"""Lists of processes: those that compute, that draw, and that compute by way of MPS. Cards for
computing alone do not know of drawing, old drivers not of MPS."""

Handle = int
"""Of a card, or of a part of one: valid until ``shutdown``."""
S = TypeVar("S", bound=ctypes.Structure)


class NvmlError(Exception):
    """``code``: as in ``nvmlReturn_t``; one that is not in ``Code`` stays a number."""

    def __init__(self, function: str, code: int, text: str) -> None:
        super().__init__(f"{function}: {text} ({code})")
        self.code = code
        self.text = text


class Sample(NamedTuple):
    """Use of the multiprocessors by one process, up to ``time_us`` (unix time)."""

    pid: int
    time_us: int
    sm_percent: int


Instance = tuple[int, int]
"""Part of a card: its GPU instance, and the compute instance in that."""


class Process(NamedTuple):
    """``memory_bytes``: None where the driver does not know. ``instance``: None on a card that is
    not divided."""

    pid: int
    memory_bytes: int | None
    instance: Instance | None


class Event(NamedTuple):
    device: Handle | None
    type: int
    data: int


class Nvml:
    """Every method raises NvmlError where the library refuses, FUNCTION_NOT_FOUND where it is too
    old for a function. For any number of threads; each calls ``init`` and ``shutdown`` in pairs,
    which the library counts."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def init(self) -> None:
        self._call("nvmlInit_v2")

    def shutdown(self) -> None:
        self._call("nvmlShutdown")

    def driver_version(self) -> str:
        return self._text("nvmlSystemGetDriverVersion", (), abi.VERSION_BYTES)

    def count(self) -> int:
        return self._number("nvmlDeviceGetCount_v2")

    def handle(self, index: int) -> Handle:
        return self._handle("nvmlDeviceGetHandleByIndex_v2", c_uint(index))

    def uuid(self, device: Handle) -> str:
        return self._text("nvmlDeviceGetUUID", (c_void_p(device),), abi.UUID_BYTES)

    def name(self, device: Handle) -> str:
        return self._text("nvmlDeviceGetName", (c_void_p(device),), abi.NAME_BYTES)

    def minor(self, device: Handle) -> int:
        """The number in ``/dev/nvidia<minor>``."""
        return self._number("nvmlDeviceGetMinorNumber", c_void_p(device))

    def bus_id(self, device: Handle) -> str:
        """PCI address as sysfs writes it: in small letters, with four digits of the domain."""
        found = abi.PciInfo()
        self._call("nvmlDeviceGetPciInfo_v3", c_void_p(device), byref(found))
        text = found.bus_id.decode(errors="replace").lower()
        return f"{found.domain:04x}:{text.partition(':')[2]}"

    def memory(self, device: Handle) -> tuple[int, int]:
        """Bytes: (total, used). What the driver keeps for itself counts as used."""
        found = abi.Memory()
        self._call("nvmlDeviceGetMemoryInfo", c_void_p(device), byref(found))
        return found.total, found.used

    def gpu_percent(self, device: Handle) -> int:
        """Share of the last sample period, of a second at most, in which anything ran."""
        found = abi.Utilization()
        self._call("nvmlDeviceGetUtilizationRates", c_void_p(device), byref(found))
        return int(found.gpu)

    def processes(self, device: Handle, kind: str) -> list[Process]:
        """One of the lists of ``KINDS``; see ``merged``."""
        function = f"nvmlDeviceGet{kind}RunningProcesses_v3"

        def fetch(entries: object, count: ctypes.c_uint) -> None:
            self._call(function, c_void_p(device), byref(count), entries)

        return [
            Process(
                each.pid,
                None if each.used_gpu_memory == abi.NOT_AVAILABLE else each.used_gpu_memory,
                None
                if each.gpu_instance_id == abi.NO_INSTANCE
                else (each.gpu_instance_id, each.compute_instance_id),
            )
            for each in self._list(function, abi.ProcessInfo, fetch)
        ]

    def samples(self, device: Handle, since_us: int) -> tuple[Sample, ...]:
        """Of processes that ran after ``since_us``; none where all were idle. With 0 the driver
        averages over a time of its choice."""

        function = "nvmlDeviceGetProcessUtilization"

        def fetch(entries: object, count: ctypes.c_uint) -> None:
            # Here the array comes before its length.
            self._call(function, c_void_p(device), entries, byref(count), c_ulonglong(since_us))

        try:
            found = self._list(function, abi.UtilizationSample, fetch)
        except NvmlError as error:
            if error.code != Code.NOT_FOUND:
                raise
            return ()
        return tuple(Sample(each.pid, each.timestamp_us, each.sm_percent) for each in found)

    # Parts of a card (MIG)

    def is_divided(self, device: Handle) -> bool:
        current, pending = c_uint(), c_uint()
        try:
            self._call("nvmlDeviceGetMigMode", c_void_p(device), byref(current), byref(pending))
        except NvmlError as error:
            if error.code in LACKING:
                return False
            raise
        return current.value == 1

    def parts(self, device: Handle) -> tuple[Handle, ...]:
        """Of a divided card. Their numbers have gaps."""
        most = self._number("nvmlDeviceGetMaxMigDeviceCount", c_void_p(device))
        found = []
        for index in range(min(most, MOST_ENTRIES)):
            try:
                found.append(
                    self._handle(
                        "nvmlDeviceGetMigDeviceHandleByIndex", c_void_p(device), c_uint(index)
                    )
                )
            except NvmlError as error:
                if error.code != Code.NOT_FOUND:
                    raise
        return tuple(found)

    def instance(self, part: Handle) -> Instance:
        gpu = self._number("nvmlDeviceGetGpuInstanceId", c_void_p(part))
        return gpu, self._number("nvmlDeviceGetComputeInstanceId", c_void_p(part))

    # Events

    def event_set(self) -> Handle:
        """To be given to ``free_events``."""
        return self._handle("nvmlEventSetCreate")

    def register(self, device: Handle, types: int, events: Handle) -> None:
        """NOT_SUPPORTED: the card sends no such events."""
        self._call(
            "nvmlDeviceRegisterEvents", c_void_p(device), c_ulonglong(types), c_void_p(events)
        )

    def wait(self, events: Handle, timeout_ms: int) -> Event | None:
        """The next one; None when the time is over."""
        found = abi.EventData()
        try:
            self._call("nvmlEventSetWait_v2", c_void_p(events), byref(found), c_uint(timeout_ms))
        except NvmlError as error:
            if error.code == Code.TIMEOUT:
                return None
            raise
        return Event(found.device, found.event_type, found.event_data)

    def free_events(self, events: Handle) -> None:
        self._call("nvmlEventSetFree", c_void_p(events))

    # How it is called

    def _call(self, function: str, *arguments: object) -> None:
        try:
            call = getattr(self._library, function)
        except AttributeError:
            text = "this driver does not have it"
            raise NvmlError(function, Code.FUNCTION_NOT_FOUND, text) from None
        if code := call(*arguments):
            raise NvmlError(function, code, self._error_text(code))

    def _error_text(self, code: int) -> str:
        describe = self._library.nvmlErrorString
        describe.restype = c_char_p
        text = describe(abi.RESULT(code))
        return text.decode(errors="replace") if text else "unknown error"

    def _number(self, function: str, *arguments: object) -> int:
        found = c_uint()
        self._call(function, *arguments, byref(found))
        return found.value

    def _handle(self, function: str, *arguments: object) -> Handle:
        found = c_void_p()
        self._call(function, *arguments, byref(found))
        return found.value or 0

    def _text(self, function: str, arguments: tuple[object, ...], most_bytes: int) -> str:
        found = ctypes.create_string_buffer(most_bytes)
        self._call(function, *arguments, found, c_uint(most_bytes))
        return found.value.decode(errors="replace")

    def _list(
        self, function: str, kind: type[S], fetch: Callable[[object, ctypes.c_uint], None]
    ) -> list[S]:
        """Two calls: how long the list is, and the list."""
        room = 0
        for _ in range(_ATTEMPTS):
            count = c_uint(room)
            entries = (kind * room)() if room else None
            try:
                fetch(entries, count)
            except NvmlError as error:
                if error.code != Code.INSUFFICIENT_SIZE or count.value > MOST_ENTRIES:
                    raise
                room = count.value + _ROOM
                continue
            return list(entries[: min(count.value, room)]) if entries is not None else []
        raise NvmlError(function, Code.INSUFFICIENT_SIZE, "the list grows while it is read")


def merged(lists: Iterable[Iterable[Process]]) -> tuple[Process, ...]:
    """A process that several lists name has the same memory in each, and counts once."""
    found: dict[tuple[int, Instance | None], int | None] = {}
    for each in chain.from_iterable(lists):
        key = each.pid, each.instance
        known = found.get(key)
        found[key] = known if each.memory_bytes is None else max(each.memory_bytes, known or 0)
    return tuple(Process(pid, memory, instance) for (pid, instance), memory in found.items())
