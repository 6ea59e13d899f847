"""The collector of GPUs on the fake kernel, with the stand-in of NVIDIA's library."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from koordlet.collectors.base import Round
from koordlet.collectors.devices.gpu import GpuCollector
from koordlet.decision.devices import GpuUser, Inventory, State, UserKind
from koordlet.decision.snapshot import Application
from koordlet.kernel.devices import xid_events
from koordlet.kernel.devices.nvml_abi import Code
from koordlet.protocol.qos import QoSClass
from tests.collectors.devices.rounds import begin, collector, reading, until, wait
from tests.collectors.world import UID, UID2, World
from tests.kernel.devices.fake_nvml import TWO, A, B, FakeNvml

MIB = 1 << 20


class Gpus:
    """A world with two GPUs and a collector that reads them."""

    def __init__(self, fake: FakeNvml) -> None:
        self.fake = fake
        self.world = World()
        self.world.host.nvml_library = fake.load
        fake.say(*TWO)

    @property
    def collector(self) -> GpuCollector:
        found = collector(self.world, "gpu")
        assert isinstance(found, GpuCollector)
        return found

    @property
    def inventory(self) -> Inventory:
        found = self.collector.inventory
        assert found is not None
        return found

    def healthy(self, uuid: str, *, code: str = "") -> bool:
        """Whether events have told so."""
        found = self.collector._machine.gpu_health.of(uuid)
        wanted = State.UNHEALTHY if code else State.HEALTHY
        return found is not None and (found.state, found.code) == (wanted, code)

    def process(self, cgroup: str, gpu: int, mib: int, sm: int | None = None) -> int:
        """In this cgroup; pid."""
        self.world.host.make_cgroup(cgroup)
        pid = self.world.host.spawn(cgroup).pid
        self.fake.add(f"proc {gpu} {pid} {mib} compute")
        if sm is not None:
            now_us = int(self.world.host.time() * 1e6)
            self.fake.add(f"sample {gpu} {pid} {now_us} {sm}")
        return pid

    def read(self) -> Round:
        return reading(self.world, "gpu")

    def samples(self) -> dict[tuple[str, ...], float]:
        """Those about devices, of one reading."""
        found = self.world.samples(self.read())
        return {key: value for key, value in found.items() if "gpu" in key[0]}


@pytest.fixture
def gpus(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    monkeypatch.setattr(xid_events, "WAIT_MS", 20)
    monkeypatch.setattr(xid_events, "AGAIN_S", 0.02)
    found = Gpus(fake_nvml)
    yield found
    fake_nvml.drop("hang")
    fake_nvml.drop("fail")
    wait(found.world, "gpu")
    health = found.collector._machine.gpu_health
    found.collector.close()
    health.stop()
    until(lambda: fake_nvml.sessions == 0)


def test_every_card_has_samples_also_an_idle_one(gpus: Gpus) -> None:
    assert gpus.samples() == {
        ("node_gpu_core_usage", A, "0"): 0.0,
        ("node_gpu_core_usage", B, "1"): 0.0,
        ("node_gpu_memory_usage", A, "0"): 600.0 * MIB,
        ("node_gpu_memory_usage", B, "1"): 600.0 * MIB,
        ("node_gpu_memory_total", A, "0"): 81920.0 * MIB,
        ("node_gpu_memory_total", B, "1"): 81920.0 * MIB,
    }


def test_use_by_container_pod_application_and_system(gpus: Gpus) -> None:
    """The first pod has two containers, one of them with two processes; a process of the sandbox
    is the pod's. What an application does on the second card stays there."""
    pod = gpus.world.pod("burstable", UID, "c1", "c2")
    gpus.world.applications = (Application("train", "train.slice", QoSClass.BE),)
    first, second = (each.cgroup for each in pod.containers)
    gpus.process(first, 0, 1000, 10)
    gpus.process(f"{first}/inner", 0, 200, 5)
    gpus.process(second, 0, 300, 20)
    gpus.process(f"{pod.cgroup}/sandbox", 0, 7)
    gpus.process("train.slice", 1, 5000, 60)
    gpus.process("user.slice", 1, 40, 2)
    found = gpus.samples()
    assert {key: value for key, value in found.items() if not key[0].startswith("node_")} == {
        ("container_gpu_core_usage", "c1", A, "0"): 15.0,
        ("container_gpu_core_usage", "c2", A, "0"): 20.0,
        ("container_gpu_memory_usage", "c1", A, "0"): 1200.0 * MIB,
        ("container_gpu_memory_usage", "c2", A, "0"): 300.0 * MIB,
        ("pod_gpu_core_usage", A, "0", UID): 35.0,
        ("pod_gpu_memory_usage", A, "0", UID): 1507.0 * MIB,
        ("host_application_gpu_core_usage", B, "1", "train"): 60.0,
        ("host_application_gpu_memory_usage", B, "1", "train"): 5000.0 * MIB,
        ("sys_gpu_core_usage", B, "1"): 2.0,
        ("sys_gpu_memory_usage", B, "1"): 40.0 * MIB,
    }
    assert found["node_gpu_core_usage", A, "0"] == 35.0
    assert found["node_gpu_memory_usage", B, "1"] == 5640.0 * MIB


def test_a_process_that_has_ended_is_the_systems(gpus: Gpus) -> None:
    """Its memory may stay for a while; nobody knows whose it was."""
    gpus.fake.add("proc 0 999999 100 compute")
    assert gpus.samples()["sys_gpu_memory_usage", A, "0"] == 100.0 * MIB


def test_a_process_that_has_just_ended_is_its_containers(gpus: Gpus) -> None:
    pod = gpus.world.pod("burstable", UID, "c1")
    pid = gpus.process(pod.containers[0].cgroup, 0, 100)
    key = ("container_gpu_memory_usage", "c1", A, "0")
    assert gpus.samples()[key] == 100.0 * MIB
    gpus.world.host.exit(gpus.world.host.machine.process(pid))
    assert gpus.samples()[key] == 100.0 * MIB


def test_who_has_gone_has_no_samples_and_leaves_its_place_in_the_store(gpus: Gpus) -> None:
    pod = gpus.world.pod("burstable", UID, "c1")
    gpus.process(pod.containers[0].cgroup, 0, 1000)
    assert ("pod_gpu_memory_usage", A, "0", UID) in gpus.samples()
    series = gpus.world.store.series(
        "pod_gpu_memory_usage",
        (("gpu_device_uuid", A), ("gpu_minor", "0"), ("pod_uid", UID)),
    )
    released = []
    gpus.world.store.release = released.append  # type: ignore[method-assign]
    gpus.fake.drop("proc")
    assert not any(key[0].startswith("pod_") for key in gpus.samples())
    assert series in released


def test_memory_that_the_driver_does_not_know_is_not_zero(gpus: Gpus) -> None:
    pod = gpus.world.pod("burstable", UID, "c1", "c2")
    for container, mib in zip(pod.containers, (-1, 50), strict=True):
        gpus.process(container.cgroup, 0, mib)
    found = gpus.samples()
    assert ("container_gpu_memory_usage", "c1", A, "0") not in found
    assert found["container_gpu_core_usage", "c1", A, "0"] == 0.0
    assert found["pod_gpu_memory_usage", A, "0", UID] == 50.0 * MIB


def test_a_divided_card(gpus: Gpus) -> None:
    """Series of pods are about the card; parts have series of their own."""
    pod = gpus.world.pod("burstable", UID, "c1")
    other = gpus.world.pod("besteffort", UID2, "c2")
    gpus.fake.say(
        f"gpu {A} 0 00000000:3B:00.0 40960 500 NVIDIA_A100",
        "mig 0 MIG-1111 7 0 4864 NVIDIA_A100_MIG_1g.5gb",
        "mig 0 MIG-2222 3 0 20096 NVIDIA_A100_MIG_3g.20gb",
    )
    for which, part, mib in ((pod, "7 0", 100), (pod, "3 0", 30), (other, "3 0", 300)):
        pid = gpus.world.host.spawn(which.containers[0].cgroup).pid
        gpus.fake.add(f"proc 0 {pid} {mib} compute {part}")
    assert gpus.samples() == {
        ("node_gpu_memory_usage", A, "0"): 930.0 * MIB,
        ("node_gpu_memory_total", A, "0"): 40960.0 * MIB,
        ("node_gpu_instance_memory_usage", "MIG-1111", "0"): 100.0 * MIB,
        ("node_gpu_instance_memory_usage", "MIG-2222", "0"): 330.0 * MIB,
        ("node_gpu_instance_memory_total", "MIG-1111", "0"): 4864.0 * MIB,
        ("node_gpu_instance_memory_total", "MIG-2222", "0"): 20096.0 * MIB,
        ("container_gpu_memory_usage", "c1", A, "0"): 130.0 * MIB,
        ("container_gpu_memory_usage", "c2", A, "0"): 300.0 * MIB,
        ("pod_gpu_memory_usage", A, "0", UID): 130.0 * MIB,
        ("pod_gpu_memory_usage", A, "0", UID2): 300.0 * MIB,
    }
    users = {(each.name, each.instance): each for each in gpus.inventory.users}
    assert users["c2", "MIG-2222"] == GpuUser(
        A, UserKind.CONTAINER, "c2", UID2, "MIG-2222", 1, None, 300 * MIB
    )


def test_health_is_a_series(gpus: Gpus) -> None:
    gpus.read()
    until(lambda: gpus.healthy(B))
    gpus.fake.add("event 1 1 79")
    until(lambda: gpus.healthy(B, code="Xid79"))
    found = gpus.world.samples(gpus.read())
    assert found["node_device_healthy", A, "0", "gpu"] == 1.0
    assert found["node_device_healthy", B, "1", "gpu"] == 0.0
    assert [each.health.code for each in gpus.inventory.gpus] == ["", "Xid79"]


def test_marks_outlive_the_collector_and_its_shedding(gpus: Gpus) -> None:
    gpus.fake.add("event 1 0 79")
    gpus.read()
    until(lambda: gpus.healthy(A, code="Xid79"))
    gpus.collector.close()
    assert gpus.healthy(A, code="Xid79")
    gpus.fake.drop("event")
    gpus.read()
    assert gpus.inventory.gpus[0].health.code == "Xid79"


def test_a_machine_without_a_gpu_is_quiet() -> None:
    world = World()
    begin(world)
    gpu: Any = world.health("gpu")
    assert gpu.success and not gpu.error and not gpu.skipped and gpu.samples == 0
    found = collector(world, "gpu")
    assert isinstance(found, GpuCollector)
    (capability,) = found.capabilities
    assert not capability.supported
    assert capability.why == (
        "no NVIDIA driver: there is neither /dev/nvidiactl nor libnvidia-ml.so.1"
    )
    assert not found._aside.runs  # nor is there a thread


def test_a_driver_that_comes_later_is_found(gpus: Gpus) -> None:
    load, gpus.world.host.nvml_library = gpus.world.host.nvml_library, None
    begin(gpus.world)
    gpus.world.host.nvml_library = load
    assert ("node_gpu_core_usage", A, "0") in gpus.samples()
    (capability,) = gpus.collector.capabilities
    assert capability.supported
    assert capability.why.startswith("2 GPUs, driver 550.54.15; a reading takes ")


def test_a_driver_that_refuses_fails_with_what_to_do(gpus: Gpus) -> None:
    gpus.fake.add(f"fail nvmlInit_v2 {Code.LIB_RM_VERSION_MISMATCH}")
    assert gpus.samples() == {}
    health: Any = gpus.world.health("gpu")
    assert health.error == "NvmlError: nvmlInit_v2: Driver/library version mismatch (18)"
    (capability,) = gpus.collector.capabilities
    assert capability.remedy.startswith("load the modules nvidia* anew, or reboot")
    gpus.fake.drop("fail")
    assert len(gpus.samples()) == 6
    assert not gpus.world.health("gpu").error  # type: ignore[attr-defined]


def test_a_driver_that_hangs_stops_no_round(gpus: Gpus) -> None:
    """Every other collector goes on, no second reading begins; when it answers, it is heard."""
    assert len(gpus.samples()) == 6
    gpus.fake.add("hang nvmlDeviceGetMemoryInfo")
    begin(gpus.world)
    gpus.world.host.advance(4)
    gpus.world.round()
    assert not gpus.world.health("gpu").error  # type: ignore[attr-defined]
    gpus.world.host.advance(7)
    found = gpus.world.samples(gpus.world.round())
    assert ("node_memory_usage",) in found
    assert not any("gpu" in key[0] for key in found)
    health: Any = gpus.world.health("gpu")
    assert health.error == "TimeoutError: the NVIDIA driver has not answered for 11 s"
    (capability,) = gpus.collector.capabilities
    assert not capability.supported and "nvidia-smi" in capability.remedy
    assert gpus.collector.inventory is None
    assert gpus.fake.sessions <= 2  # that of the reader and that of the events
    gpus.fake.drop("hang")
    wait(gpus.world, "gpu")
    found = gpus.world.samples(gpus.world.rounds())
    assert found["node_gpu_memory_usage", A, "0"] == 600.0 * MIB
    assert gpus.collector.capabilities[0].supported


@pytest.mark.parametrize("interval_s", [10.0, 3600.0])
def test_the_collector_fails_five_seconds_into_a_hang(gpus: Gpus, interval_s: float) -> None:
    """Whatever its interval is; once, and again in its turns."""
    gpus.collector.interval_s = interval_s
    gpus.fake.add("hang nvmlDeviceGetCount_v2")
    begin(gpus.world)
    for seconds in range(1, 9):
        gpus.world.host.advance(1)
        gpus.world.round()
        health: Any = gpus.world.health("gpu")
        assert (health.consecutive_failures, bool(health.error)) == (seconds >= 5, seconds >= 5)
    assert health.error == "TimeoutError: the NVIDIA driver has not answered for 5 s"


def test_collectors_made_anew_begin_no_second_call_beside_one_that_hangs(gpus: Gpus) -> None:
    """As a reload does, time and again; the last one goes on when the driver answers."""
    gpus.fake.add("hang nvmlDeviceGetCount_v2")
    begin(gpus.world)
    machine, collector = gpus.collector._machine, gpus.collector

    def threads() -> int:
        return sum(each.name == "gpu" for each in threading.enumerate())

    assert threads() == 1
    for _ in range(3):
        collector.close()
        collector = GpuCollector(machine)
        gpus.world.host.advance(10)
        with pytest.raises(TimeoutError, match="has not answered for"):
            collector.collect(gpus.world.new_round())
        assert threads() == 1
    gpus.fake.drop("hang")
    until(lambda: machine.asides.gpu.has_ended)
    assert gpus.fake.sessions == 0  # what the first one had begun was let go
    collector.collect(gpus.world.new_round())
    until(lambda: collector.has_ended)
    collector.collect(gpus.world.new_round())
    assert collector.inventory is not None and len(collector.inventory.gpus) == 2
    collector.close()


def test_closed_while_the_driver_hangs_it_returns_at_once(gpus: Gpus) -> None:
    gpus.fake.add("hang nvmlDeviceGetCount_v2")
    begin(gpus.world)
    gpus.collector.close()
    begun = gpus.collector._aside
    gpus.world.host.advance(30)
    gpus.world.round()  # and no second thread hangs beside the first one
    assert gpus.collector._aside is begun and begun.runs
    gpus.fake.drop("hang")
    until(lambda: begun.has_ended)
    until(lambda: gpus.fake.sessions == 0)


def test_a_driver_that_does_not_let_go_is_told(gpus: Gpus) -> None:
    """When the collector ends; before that the reading that failed says enough."""
    gpus.samples()
    gpus.fake.add(f"fail nvmlShutdown {Code.UNKNOWN}")
    with capture_logs() as logs:
        gpus.collector.close()
        until(lambda: gpus.collector._aside.has_ended)
    gpus.fake.drop("fail")
    gpus.fake.load().shutdown()
    (line,) = logs
    assert (line["event"], line["call"]) == ("could not be ended", "gpu")
    assert "nvmlShutdown" in line["error"]


def test_what_one_card_refuses_is_named(gpus: Gpus) -> None:
    gpus.fake.add(f"fail nvmlDeviceGetHandleByIndex_v2 {Code.NO_PERMISSION} 1")
    found = gpus.samples()
    assert ("node_gpu_core_usage", A, "0") in found
    assert ("node_gpu_core_usage", B, "1") not in found
    health: Any = gpus.world.health("gpu")
    assert (health.skipped, health.success) == (1, True)
    assert "GPU 1: " in health.skipped_example


def test_readings_begin_every_ten_seconds(gpus: Gpus) -> None:
    """Also when each is taken a second later."""
    gpus.samples()
    begun = []
    for _ in range(31):
        gpus.world.rounds()
        if gpus.collector._aside.runs:
            begun.append(gpus.world.host.monotonic())
            wait(gpus.world, "gpu")
    assert [later - earlier for earlier, later in pairwise(begun)] == [10, 10]
