"""NVML by ctypes against the stand-in, which nvidia-ml-py reads as well: where both read the same,
the layouts of ours are those of NVIDIA."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from koordlet.kernel.devices import nvml as ours
from koordlet.kernel.devices.nvml import (
    KINDS,
    Event,
    Handle,
    Nvml,
    NvmlError,
    Process,
    Sample,
    merged,
)
from koordlet.kernel.devices.nvml_abi import XID_CRITICAL, Code
from koordlet.kernel.linux import LinuxHost
from tests.kernel.devices.fake_nvml import TWO, A, B, FakeNvml

MIB = 1 << 20
MIG = (
    f"gpu {A} 0 00000000:3B:00.0 40960 500 NVIDIA_A100",
    "mig 0 MIG-1111 7 0 4864 NVIDIA_A100_MIG_1g.5gb",
    "mig 0 MIG-2222 3 0 20096 NVIDIA_A100_MIG_3g.20gb",
)


@pytest.fixture
def nvml(fake_nvml: FakeNvml) -> Iterator[Nvml]:
    library = fake_nvml.load()
    library.init()
    yield library
    fake_nvml.drop("fail")
    library.shutdown()


@pytest.fixture
def theirs(fake_nvml: FakeNvml) -> Iterator[ModuleType]:
    """It asks for the library by name and finds the one that is loaded."""
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    fake_nvml.load()
    pynvml.nvmlInit()
    yield pynvml
    pynvml.nvmlShutdown()


def processes(nvml: Nvml, device: Handle) -> tuple[Process, ...]:
    """Of all kinds."""
    return merged(nvml.processes(device, kind) for kind in KINDS)


def test_what_a_card_is(fake_nvml: FakeNvml, nvml: Nvml) -> None:
    fake_nvml.say(*TWO, "proc 1 4711 1000 compute", "rate 1 34", "driver 580.65.06")
    assert nvml.driver_version() == "580.65.06"
    assert nvml.count() == 2
    device = nvml.handle(1)
    assert nvml.uuid(device) == B
    assert nvml.minor(device) == 1
    assert nvml.name(device) == "NVIDIA H100 80GB HBM3"
    assert nvml.bus_id(device) == "0000:86:00.0"
    assert nvml.memory(device) == (81920 * MIB, 1600 * MIB)
    assert nvml.gpu_percent(device) == 34


def test_a_pci_domain_of_more_than_four_digits_stays(fake_nvml: FakeNvml, nvml: Nvml) -> None:
    fake_nvml.say(f"gpu {A} 0 00010001:3B:1F.0 1024 0 X")
    assert nvml.bus_id(nvml.handle(0)) == "10001:3b:1f.0"


def test_processes_of_three_kinds_each_once(fake_nvml: FakeNvml, nvml: Nvml) -> None:
    """11 computes and draws: NVML lists it twice with the same memory. 13: the driver does not
    know its memory."""
    fake_nvml.say(
        *TWO,
        *("proc 0 11 100 compute", "proc 0 11 100 graphics", "proc 0 12 50 graphics"),
        *("proc 0 13 -1 compute", "proc 0 14 25 mps", "proc 1 99 1 compute"),
    )
    found = {each.pid: each for each in processes(nvml, nvml.handle(0))}
    assert found == {
        11: Process(11, 100 * MIB, None),
        12: Process(12, 50 * MIB, None),
        13: Process(13, None, None),
        14: Process(14, 25 * MIB, None),
    }


def test_a_long_list_needs_two_calls(fake_nvml: FakeNvml, nvml: Nvml) -> None:
    fake_nvml.say(*TWO, *(f"proc 0 {pid} 1 compute" for pid in range(1, 201)))
    assert {each.pid for each in processes(nvml, nvml.handle(0))} == set(range(1, 201))


def test_a_list_beyond_all_bounds_is_refused(
    fake_nvml: FakeNvml, nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "MOST_ENTRIES", 10)
    fake_nvml.say(*TWO, *(f"proc 0 {pid} 1 compute" for pid in range(1, 20)))
    with pytest.raises(NvmlError) as caught:
        processes(nvml, nvml.handle(0))
    assert caught.value.code == Code.INSUFFICIENT_SIZE


def test_samples_are_those_after_a_time(fake_nvml: FakeNvml, nvml: Nvml) -> None:
    fake_nvml.say(*TWO, "sample 0 11 1000 40", "sample 0 11 2000 60", "sample 0 12 3000 5")
    device = nvml.handle(0)
    assert nvml.samples(device, 0) == (
        Sample(11, 1000, 40),
        Sample(11, 2000, 60),
        Sample(12, 3000, 5),
    )
    assert nvml.samples(device, 2000) == (Sample(12, 3000, 5),)
    assert nvml.samples(device, 3000) == ()


def test_an_idle_card_has_no_samples(fake_nvml: FakeNvml, nvml: Nvml) -> None:
    """NVML says "Not Found"."""
    fake_nvml.say(*TWO)
    assert nvml.samples(nvml.handle(0), 0) == ()
    fake_nvml.add("fail nvmlDeviceGetProcessUtilization 6")  # at the first of the two calls
    assert nvml.samples(nvml.handle(0), 0) == ()


def test_parts_of_a_card(fake_nvml: FakeNvml, nvml: Nvml) -> None:
    fake_nvml.say(*MIG, "proc 0 11 100 compute 7 0", "proc 0 12 300 compute 3 0")
    device = nvml.handle(0)
    assert nvml.is_divided(device)
    first, second = nvml.parts(device)
    assert [nvml.uuid(first), nvml.uuid(second)] == ["MIG-1111", "MIG-2222"]
    assert nvml.name(second) == "NVIDIA A100 MIG 3g.20gb"
    assert nvml.instance(first) == (7, 0)
    assert nvml.memory(second) == (20096 * MIB, 300 * MIB)
    assert {each.pid: each.instance for each in processes(nvml, device)} == {11: (7, 0), 12: (3, 0)}
    with pytest.raises(NvmlError, match="Not Supported"):
        nvml.samples(device, 0)


@pytest.mark.parametrize("code", [0, Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND])
def test_a_whole_card_is_not_divided(fake_nvml: FakeNvml, nvml: Nvml, code: int) -> None:
    fake_nvml.say(*TWO, *([f"fail nvmlDeviceGetMigMode {code}"] if code else []))
    assert not nvml.is_divided(nvml.handle(0))


def test_events_come_once_each(fake_nvml: FakeNvml, nvml: Nvml) -> None:
    fake_nvml.say(*TWO, "event 1 1 79", "event 2 0 48")
    events = nvml.event_set()
    for index in range(2):
        nvml.register(nvml.handle(index), XID_CRITICAL, events)
    assert nvml.wait(events, 60_000) == Event(nvml.handle(1), XID_CRITICAL, 79)
    assert nvml.wait(events, 60_000) == Event(nvml.handle(0), XID_CRITICAL, 48)
    assert nvml.wait(events, 10) is None
    nvml.free_events(events)


def test_an_event_of_no_card(fake_nvml: FakeNvml, nvml: Nvml) -> None:
    fake_nvml.say(*TWO, "event 1 -1 79")
    events = nvml.event_set()
    assert nvml.wait(events, 60_000) == Event(None, XID_CRITICAL, 79)
    nvml.free_events(events)


def test_an_error_names_function_text_and_code(fake_nvml: FakeNvml) -> None:
    library = fake_nvml.load()
    fake_nvml.say(f"fail nvmlInit_v2 {Code.DRIVER_NOT_LOADED}")
    with pytest.raises(NvmlError) as caught:
        library.init()
    assert str(caught.value) == "nvmlInit_v2: Driver Not Loaded (9)"
    assert caught.value.code == Code.DRIVER_NOT_LOADED


def test_before_the_session_nothing_is_told(fake_nvml: FakeNvml) -> None:
    with pytest.raises(NvmlError) as caught:
        fake_nvml.load().count()
    assert caught.value.code == Code.UNINITIALIZED


def test_a_function_that_the_driver_lacks() -> None:
    import ctypes

    with pytest.raises(NvmlError) as caught:
        Nvml(ctypes.CDLL(None)).init()
    assert caught.value.code == Code.FUNCTION_NOT_FOUND


def test_without_the_library_the_linker_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from koordlet.kernel import syscalls

    with pytest.raises(FileNotFoundError, match="cannot open shared object file"):
        syscalls.shared_library("libkoordlet-has-no-such-library.so.1")


def test_the_host_loads_it_by_its_name(fake_nvml: FakeNvml) -> None:
    """Once it is loaded, its SONAME is found."""
    fake_nvml.load()
    fake_nvml.say(*TWO)
    nvml = LinuxHost().nvml()
    nvml.init()
    assert nvml.count() == 2
    nvml.shutdown()


def test_a_second_reader_reads_the_same(
    fake_nvml: FakeNvml, nvml: Nvml, theirs: ModuleType
) -> None:
    fake_nvml.say(
        *TWO,
        *("proc 0 11 100 compute", "proc 0 12 50 graphics", "proc 0 14 25 mps", "rate 0 34"),
        *("sample 0 11 1000 40", "sample 0 12 3000 5"),
    )
    mine, other = nvml.handle(0), theirs.nvmlDeviceGetHandleByIndex(0)
    memory = theirs.nvmlDeviceGetMemoryInfo(other)
    assert nvml.count() == theirs.nvmlDeviceGetCount()
    assert nvml.driver_version() == theirs.nvmlSystemGetDriverVersion()
    assert nvml.uuid(mine) == theirs.nvmlDeviceGetUUID(other)
    assert nvml.name(mine) == theirs.nvmlDeviceGetName(other)
    assert nvml.minor(mine) == theirs.nvmlDeviceGetMinorNumber(other)
    assert nvml.memory(mine) == (memory.total, memory.used)
    assert nvml.gpu_percent(mine) == theirs.nvmlDeviceGetUtilizationRates(other).gpu
    pci = theirs.nvmlDeviceGetPciInfo(other)
    assert nvml.bus_id(mine) == pci.busId.lower().removeprefix("0000")
    listed = [
        *theirs.nvmlDeviceGetComputeRunningProcesses(other),
        *theirs.nvmlDeviceGetGraphicsRunningProcesses(other),
        *theirs.nvmlDeviceGetMPSComputeRunningProcesses(other),
    ]
    assert {(each.pid, each.memory_bytes) for each in processes(nvml, mine)} == {
        (each.pid, each.usedGpuMemory) for each in listed
    }
    assert [tuple(each) for each in nvml.samples(mine, 0)] == [
        (each.pid, each.timeStamp, each.smUtil)
        for each in theirs.nvmlDeviceGetProcessUtilization(other, 0)
    ]


def test_a_second_reader_sees_the_same_parts_and_events(
    fake_nvml: FakeNvml, nvml: Nvml, theirs: ModuleType
) -> None:
    fake_nvml.say(*MIG, "proc 0 11 100 compute 7 0")
    mine, other = nvml.handle(0), theirs.nvmlDeviceGetHandleByIndex(0)
    assert theirs.nvmlDeviceGetMigMode(other) == [1, 1]
    part = theirs.nvmlDeviceGetMigDeviceHandleByIndex(other, 2)
    uuids = [nvml.uuid(each) for each in nvml.parts(mine)]
    assert theirs.nvmlDeviceGetUUID(part) == uuids[1]
    instance = theirs.nvmlDeviceGetGpuInstanceId(part), theirs.nvmlDeviceGetComputeInstanceId(part)
    assert nvml.instance(nvml.parts(mine)[1]) == instance == (3, 0)
    (process,) = theirs.nvmlDeviceGetComputeRunningProcesses(other)
    assert (process.gpuInstanceId, process.computeInstanceId) == processes(nvml, mine)[0].instance
    fake_nvml.add("event 1 0 79")
    events = theirs.nvmlEventSetCreate()
    theirs.nvmlDeviceRegisterEvents(other, theirs.nvmlEventTypeXidCriticalError, events)
    event = theirs.nvmlEventSetWait(events, 60_000)
    assert (event.eventType, event.eventData) == (XID_CRITICAL, 79)
    theirs.nvmlEventSetFree(events)


def test_the_codes_are_those_of_nvidia(theirs: ModuleType) -> None:
    for code in Code:
        assert getattr(theirs, f"NVML_ERROR_{code.name}") == code
    assert theirs.nvmlEventTypeXidCriticalError == XID_CRITICAL
