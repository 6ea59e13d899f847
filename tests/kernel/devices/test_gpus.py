"""What is made of the answers of NVML: two cards, parts of cards, processes and their cgroups."""

from __future__ import annotations

import pytest
from koordlet_fakefs import FakeHost
from koordlet_fakefs.devices import Devices

from koordlet.decision.devices import GpuInstance, Place, State
from koordlet.kernel.devices import gpus, nvml
from koordlet.kernel.devices.gpus import GpuReader, GpuReading
from koordlet.kernel.devices.nvml import NvmlError
from koordlet.kernel.devices.nvml_abi import Code
from tests.kernel.devices.fake_nvml import TWO, A, B, FakeNvml

MIB = 1 << 20
NOW_US = int(FakeHost().time() * 1e6)


@pytest.fixture
def host() -> FakeHost:
    found = FakeHost()
    devices = Devices(found.root)
    devices.add_pci("0000:3b:00.0", numa=1)
    devices.add_pci("0000:86:00.0", root="pci0000:85", bridge="0000:85:00.0", numa=-1)
    return found


@pytest.fixture
def reader(fake_nvml: FakeNvml, host: FakeHost) -> GpuReader:
    return GpuReader(fake_nvml.load(), host)


def read(reader: GpuReader, index: int = 0) -> GpuReading:
    found = reader.read()
    assert found.failed == ()
    return found.gpus[index]


def test_a_card_and_where_it_is(fake_nvml: FakeNvml, reader: GpuReader) -> None:
    """Used is what the driver says, its own 600 MiB with it; firmware that tells no NUMA node
    means node 0."""
    fake_nvml.say(*TWO, "proc 0 4711 1000 compute")
    found = reader.read()
    assert found.driver_version == "550.54.15"
    first, second = (each.gpu for each in found.gpus)
    assert (first.uuid, first.minor, first.model) == (A, 0, "NVIDIA H100 80GB HBM3")
    assert first.place == Place("0000:3b:00.0", "pci0000:3a", 1)
    assert second.place == Place("0000:86:00.0", "pci0000:85", 0)
    assert (first.memory_bytes, first.used_bytes) == (81920 * MIB, 1600 * MIB)
    assert (second.memory_bytes, second.used_bytes) == (81920 * MIB, 600 * MIB)
    assert first.instances == ()


def test_a_card_that_sysfs_does_not_know(fake_nvml: FakeNvml, reader: GpuReader) -> None:
    fake_nvml.say(f"gpu {A} 0 00000000:AF:00.0 1024 0 X")
    assert read(reader).gpu.place == Place("0000:af:00.0")


def test_processes_and_their_cgroups(
    fake_nvml: FakeNvml, host: FakeHost, reader: GpuReader
) -> None:
    host.make_cgroup("kubepods/pod1/c1")
    process = host.spawn("kubepods/pod1/c1")
    gone = process.pid + 1000
    fake_nvml.say(
        *TWO,
        f"proc 0 {process.pid} 1000 compute",
        f"proc 0 {gone} 10 graphics",
        f"sample 0 {process.pid} {NOW_US - 100} 40",
    )
    first, second = read(reader).processes
    assert (first.pid, first.memory_bytes, first.core_percent) == (process.pid, 1000 * MIB, 40.0)
    assert "kubepods/pod1/c1" in first.cgroups
    assert (second.pid, second.core_percent, second.cgroups) == (gone, 0.0, frozenset())


def test_a_process_that_ran_and_holds_nothing_counts_too(
    fake_nvml: FakeNvml, reader: GpuReader
) -> None:
    fake_nvml.say(*TWO, f"sample 0 77 {NOW_US - 100} 30")
    (process,) = read(reader).processes
    assert (process.pid, process.memory_bytes, process.core_percent) == (77, None, 30.0)


def test_samples_since_the_last_reading(fake_nvml: FakeNvml, reader: GpuReader) -> None:
    """First those of the last 2 s before the newest; then all newer ones, and their mean; then
    nothing was run."""
    fake_nvml.say(
        *TWO,
        "proc 0 7 10 compute",
        f"sample 0 7 {NOW_US - 9_000_000} 90",
        f"sample 0 7 {NOW_US - 5_000_000} 20",
        f"sample 0 7 {NOW_US - 4_000_000} 40",
    )
    assert read(reader).gpu.core_percent == 30.0
    fake_nvml.add(f"sample 0 7 {NOW_US - 1_000_000} 10", f"sample 0 7 {NOW_US - 500_000} 50")
    found = read(reader)
    assert found.gpu.core_percent == 30.0
    assert found.processes[0].core_percent == 30.0
    fake_nvml.drop("sample")
    assert read(reader).gpu.core_percent == 0.0


def test_use_is_seen_after_the_clock_was_set_back(
    fake_nvml: FakeNvml, host: FakeHost, reader: GpuReader
) -> None:
    """By an hour and a half minute: samples from before are of a time to come, and hide none."""
    fake_nvml.say(*TWO, "proc 0 7 10 compute", f"sample 0 7 {NOW_US - 100} 80")
    assert read(reader).gpu.core_percent == 80.0
    for back_s in (3600, 30):
        host.clock_ahead_s -= back_s
        now_us = int(host.time() * 1e6)
        fake_nvml.add(f"sample 0 7 {now_us - 100} {back_s % 97}")
        assert read(reader).gpu.core_percent == back_s % 97


def test_processes_that_take_turns_share_the_card(fake_nvml: FakeNvml, reader: GpuReader) -> None:
    """A process without a sample in a period was idle in it. One sample for each process is a mean
    that the driver has made, whatever its time is."""
    turns = (f"sample 0 {7 + turn % 2} {NOW_US - 1000 + turn} 100" for turn in range(6))
    fake_nvml.say(*TWO, "proc 0 7 10 compute", "proc 0 8 10 compute", *turns)
    found = read(reader)
    assert {each.pid: each.core_percent for each in found.processes} == {7: 50.0, 8: 50.0}
    assert found.gpu.core_percent == 100.0
    fake_nvml.drop("sample")
    fake_nvml.add(f"sample 0 7 {NOW_US} 30", f"sample 0 8 {NOW_US + 10} 40")
    found = read(reader)
    assert {each.pid: each.core_percent for each in found.processes} == {7: 30.0, 8: 40.0}


def test_each_card_has_samples_of_its_own(fake_nvml: FakeNvml, reader: GpuReader) -> None:
    fake_nvml.say(*TWO, f"sample 0 7 {NOW_US - 100} 20", f"sample 1 7 {NOW_US - 5_000_000} 60")
    assert [each.gpu.core_percent for each in reader.read().gpus] == [20.0, 60.0]
    fake_nvml.add(f"sample 1 7 {NOW_US - 4_000_000} 80")
    assert [each.gpu.core_percent for each in reader.read().gpus] == [0.0, 80.0]


def test_garbage_among_samples_is_left_out(fake_nvml: FakeNvml, reader: GpuReader) -> None:
    """Drivers return such (NVIDIA/DCGM issue 83): a share above 100 %, pid 0, a time to come,
    which would hide all later samples."""
    fake_nvml.say(
        *TWO,
        f"sample 0 7 {NOW_US - 100} 2147483632",
        f"sample 0 0 {NOW_US - 100} 50",
        f"sample 0 8 {NOW_US + 10**12} 50",
        f"sample 0 9 {NOW_US - 200} 12",
    )
    assert read(reader).gpu.core_percent == 12.0
    fake_nvml.add(f"sample 0 9 {NOW_US - 50} 14")
    assert read(reader).gpu.core_percent == 14.0


def test_a_card_is_never_used_by_more_than_all_of_it(
    fake_nvml: FakeNvml, reader: GpuReader
) -> None:
    """Processes have samples of different times."""
    fake_nvml.say(*TWO, *(f"sample 0 {pid} {NOW_US - pid} 60" for pid in (7, 8)))
    assert read(reader).gpu.core_percent == 100.0


def test_where_processes_have_no_samples_the_card_tells(
    fake_nvml: FakeNvml, reader: GpuReader
) -> None:
    fake_nvml.say(
        *TWO, "proc 0 7 10 compute", "rate 0 34", f"fail nvmlDeviceGetProcessUtilization {3}"
    )
    found = read(reader)
    assert found.gpu.core_percent == 34.0
    assert found.processes[0].core_percent is None
    fake_nvml.drop("rate")
    assert read(reader).gpu.core_percent is None  # nobody knows, which is not zero


def test_parts_of_a_divided_card(fake_nvml: FakeNvml, reader: GpuReader) -> None:
    """Of which nobody tells how busy they are."""
    fake_nvml.say(
        f"gpu {A} 0 00000000:3B:00.0 40960 500 NVIDIA_A100",
        "mig 0 MIG-1111 7 0 4864 NVIDIA_A100_MIG_1g.5gb",
        "mig 0 MIG-2222 3 0 20096 NVIDIA_A100_MIG_3g.20gb",
        "mig 0 MIG-3333 3 1 20096 NVIDIA_A100_MIG_1c.3g.20gb",
        *("proc 0 11 100 compute 7 0", "proc 0 12 300 compute 3 0", "proc 0 13 5 compute 3 1"),
    )
    found = read(reader)
    assert found.gpu.instances == (
        GpuInstance("MIG-1111", "NVIDIA A100 MIG 1g.5gb", 4864 * MIB, 100 * MIB),
        GpuInstance("MIG-2222", "NVIDIA A100 MIG 3g.20gb", 20096 * MIB, 300 * MIB),
        GpuInstance("MIG-3333", "NVIDIA A100 MIG 1c.3g.20gb", 20096 * MIB, 5 * MIB),
    )
    assert {each.pid: each.instance for each in found.processes} == {
        11: "MIG-1111",
        12: "MIG-2222",
        13: "MIG-3333",
    }
    assert found.gpu.core_percent is None
    assert found.gpu.used_bytes == 905 * MIB


@pytest.mark.parametrize(
    ("function", "code"),
    [
        ("nvmlDeviceGetMigMode", Code.NO_PERMISSION),
        ("nvmlDeviceGetMaxMigDeviceCount", Code.NO_PERMISSION),
        ("nvmlDeviceGetMigDeviceHandleByIndex", Code.UNKNOWN),
        ("nvmlDeviceGetGpuInstanceId", Code.NOT_FOUND),
    ],
)
def test_what_it_does_not_say_of_parts_does_not_hide_the_card(
    fake_nvml: FakeNvml, reader: GpuReader, function: str, code: Code
) -> None:
    fake_nvml.say(
        f"gpu {A} 0 00000000:3B:00.0 40960 500 NVIDIA_A100",
        "mig 0 MIG-1111 7 0 4864 NVIDIA_A100_MIG_1g.5gb",
        "proc 0 11 100 compute 7 0",
        f"fail {function} {code}",
    )
    found = reader.read()
    (reading,) = found.gpus
    assert (reading.gpu.used_bytes, reading.gpu.instances) == (600 * MIB, ())
    assert [(each.pid, each.instance) for each in reading.processes] == [(11, "")]
    assert [text.partition(" (")[0].split(": ")[:2] for text in found.failed] == [
        ["GPU 0", function]
    ]


def test_a_list_that_grows_costs_itself(
    fake_nvml: FakeNvml, reader: GpuReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "MOST_ENTRIES", 10)
    fake_nvml.say(
        *TWO, "proc 0 77 5 graphics", *(f"proc 0 {pid} 1 compute" for pid in range(1, 20))
    )
    found = reader.read()
    assert [each.pid for each in found.gpus[0].processes] == [77]
    assert [text.split(": ")[:2] for text in found.failed] == [
        ["GPU 0", "nvmlDeviceGetComputeRunningProcesses_v3"]
    ]


def test_a_card_without_a_minor_has_its_index(fake_nvml: FakeNvml, reader: GpuReader) -> None:
    fake_nvml.say(*TWO, f"fail nvmlDeviceGetMinorNumber {Code.NOT_SUPPORTED}")
    assert read(reader, 1).gpu.minor == 1


@pytest.mark.parametrize("code", [Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND])
def test_a_card_without_graphics_is_no_error(
    fake_nvml: FakeNvml, reader: GpuReader, code: Code
) -> None:
    fake_nvml.say(
        *TWO,
        "proc 0 11 100 compute",
        f"fail nvmlDeviceGetGraphicsRunningProcesses_v3 {code}",
        f"fail nvmlDeviceGetMPSComputeRunningProcesses_v3 {code}",
    )
    assert [each.pid for each in read(reader).processes] == [11]


def test_a_list_that_is_refused_is_named_and_hides_no_other(
    fake_nvml: FakeNvml, reader: GpuReader
) -> None:
    function = "nvmlDeviceGetMPSComputeRunningProcesses_v3"
    fake_nvml.say(*TWO, "proc 0 11 100 compute", f"fail {function} {Code.NO_PERMISSION} 0")
    found = reader.read()
    assert [each.pid for each in found.gpus[0].processes] == [11]
    assert found.failed == (f"GPU 0: {function}: Insufficient Permissions (4)",)


def test_of_very_many_processes_the_largest_count(
    fake_nvml: FakeNvml, reader: GpuReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "MOST_PROCESSES", 3)
    fake_nvml.say(*TWO, *(f"proc 0 {pid} {pid} compute" for pid in range(1, 11)))
    found = reader.read()
    assert [each.pid for each in found.gpus[0].processes] == [10, 9, 8]
    assert found.failed == ("GPU 0: 10 processes: only the 3 with most memory count",)


def test_of_very_many_cards_the_first_are_read(
    fake_nvml: FakeNvml, reader: GpuReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "MOST_GPUS", 1)
    fake_nvml.say(*TWO)
    found = reader.read()
    assert [each.gpu.uuid for each in found.gpus] == [A]
    assert found.failed == ("2 GPUs: only the first 1 are read",)


def test_a_process_that_has_ended_keeps_its_cgroups(
    fake_nvml: FakeNvml, host: FakeHost, reader: GpuReader
) -> None:
    """The driver may list it for a while."""
    host.make_cgroup("kubepods/pod1/c1")
    process = host.spawn("kubepods/pod1/c1")
    fake_nvml.say(*TWO, f"proc 0 {process.pid} 1000 compute")
    wanted = read(reader).processes[0].cgroups
    assert "kubepods/pod1/c1" in wanted
    host.exit(process)
    for _ in range(2):
        assert read(reader).processes[0].cgroups == wanted


def test_a_lost_card_does_not_hide_the_others(fake_nvml: FakeNvml, reader: GpuReader) -> None:
    fake_nvml.say(*TWO, f"rate 1 10 {B}")
    reader.read()
    fake_nvml.add(f"fail nvmlDeviceGetHandleByIndex_v2 {Code.GPU_IS_LOST} 0")
    found = reader.read()
    assert found.failed == ("GPU 0: nvmlDeviceGetHandleByIndex_v2: GPU is lost (15)",)
    lost, other = (each.gpu for each in found.gpus)
    assert (lost.uuid, lost.health.state, lost.health.code) == (A, State.UNHEALTHY, "GpuIsLost")
    assert (lost.used_bytes, lost.core_percent) == (None, None)
    assert other.uuid == B


def test_a_card_that_we_may_not_open_is_left_out(fake_nvml: FakeNvml, reader: GpuReader) -> None:
    fake_nvml.say(*TWO, f"fail nvmlDeviceGetHandleByIndex_v2 {Code.NO_PERMISSION} 1")
    found = reader.read()
    assert [each.gpu.uuid for each in found.gpus] == [A]
    assert found.failed == ("GPU 1: nvmlDeviceGetHandleByIndex_v2: Insufficient Permissions (4)",)


def test_what_a_card_does_not_tell_is_not_known(fake_nvml: FakeNvml, reader: GpuReader) -> None:
    fake_nvml.say(*TWO, f"fail nvmlDeviceGetMemoryInfo {Code.NOT_SUPPORTED}")
    found = read(reader)
    assert (found.gpu.memory_bytes, found.gpu.used_bytes) == (None, None)


def test_a_driver_that_is_not_loaded_and_is_then(fake_nvml: FakeNvml, reader: GpuReader) -> None:
    fake_nvml.say(*TWO, f"fail nvmlInit_v2 {Code.DRIVER_NOT_LOADED}")
    with pytest.raises(NvmlError, match="Driver Not Loaded"):
        reader.read()
    fake_nvml.drop("fail")
    assert len(reader.read().gpus) == 2


def test_a_session_that_was_lost_is_begun_anew(fake_nvml: FakeNvml, reader: GpuReader) -> None:
    fake_nvml.say(*TWO)
    reader.read()
    assert fake_nvml.sessions == 1
    fake_nvml.add(f"fail nvmlDeviceGetUUID {Code.UNINITIALIZED}")
    with pytest.raises(NvmlError):
        reader.read()
    assert fake_nvml.sessions == 0
    fake_nvml.drop("fail")
    assert len(reader.read().gpus) == 2


def test_closed_it_holds_the_driver_no_longer(fake_nvml: FakeNvml, reader: GpuReader) -> None:
    fake_nvml.say(*TWO)
    reader.read()
    reader.close()
    reader.close()
    assert fake_nvml.sessions == 0
