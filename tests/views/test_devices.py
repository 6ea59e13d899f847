"""What a whole daemon on the fake kernel says of devices."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from koordlet_fakefs.devices import Devices
from prometheus_client.parser import text_string_to_metric_families

from koordlet.admin.devices import DevicesView, DeviceUserView
from koordlet.admin.model.doctor import CheckState, CheckView
from koordlet.cli.show.devices import lines
from koordlet.collectors.devices.xpu import DIRECTORY
from koordlet.decision.devices import State
from koordlet.decision.family import Family, Page
from koordlet.kernel.devices import xid_events
from koordlet.kernel.devices.nvml_abi import Code
from koordlet.report import device_metrics
from koordlet.report.page import Format, render
from koordlet.views.publish import publish
from tests.collectors.devices.rounds import until
from tests.daemon.world import APPLICATIONS, World
from tests.engine.test_kubepods import BOX, UIDS
from tests.kernel.devices.fake_nvml import TWO, A, B, FakeNvml, fake_nvml, nvml_library

__all__ = ["fake_nvml", "nvml_library"]
MakeWorld = Callable[..., World]
UID = UIDS["guaranteed"]
FASTER = "[collectors.psi]\nenable = false\n"


class Scene:
    """Two GPUs with a pod, an application and a stranger on them; a card with RDMA; a file of
    accelerators."""

    def __init__(self, world: World, fake: FakeNvml) -> None:
        self.world, self.fake = world, fake
        world.host.nvml_library = fake.load
        devices = Devices(world.host.root)
        devices.add_pci("0000:3b:00.0", numa=1)
        devices.add_pci("0000:86:00.0")
        devices.add_pci("0000:5e:00.0")
        devices.add_rdma("mlx5_0", "0000:5e:00.0", network="ens1f0")
        self.devices = devices
        xpu = {"uuid": "npu-1", "minor": "2", "vendor": "huawei", "model": "Ascend-910B"}
        xpu |= {"resources": {"gpu-memory": "64Gi"}}  # type: ignore[dict-item]
        devices.files(DIRECTORY).put("npu.json", json.dumps([xpu]).encode())
        pod = world.host.make_pod("cgroupfs", "guaranteed", UID, [BOX])
        world.application("batch", 0.1)
        fake.say(*TWO)
        for gpu, process, mib, sm in (
            (0, world.host.spawn(pod.containers[0]), 1000, 30),
            (0, world.processes["batch"], 200, 5),
            (1, world.host.spawn(""), 40, 1),
        ):
            now_us = int(world.host.time() * 1e6)
            fake.add(f"proc {gpu} {process.pid} {mib} compute")
            fake.add(f"sample {gpu} {process.pid} {now_us} {sm}")
        world.start()  # where a first reading begins
        self.wait()
        world.run(1)

    def read(self) -> None:
        """A reading begins and is taken."""
        self.world.run(11)
        self.wait()
        self.world.run(1)

    def wait(self) -> None:
        for each in self.world.parts.runner.collectors:
            aside = getattr(each, "_aside", None)
            if aside is not None and aside.runs:
                until(lambda aside=aside: aside.has_ended)  # type: ignore[misc]

    @property
    def view(self) -> DevicesView:
        return self.world.views.devices()

    def checks(self) -> dict[str, CheckView]:
        return {each.name: each for each in self.world.views.doctor()().checks}

    def mark(self) -> None:
        """A critical Xid on the second GPU."""
        until(lambda: self.state is State.HEALTHY)
        self.fake.add("event 1 1 79")
        until(lambda: self.state is State.UNHEALTHY)
        self.read()

    @property
    def state(self) -> State | None:
        """What events have told of the second GPU."""
        health = self.world.parts.gpu_health.of(B)
        return health.state if health is not None else None


@pytest.fixture
def scene(
    make_world: MakeWorld, fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    monkeypatch.setattr(xid_events, "WAIT_MS", 20)
    monkeypatch.setattr(xid_events, "AGAIN_S", 0.02)
    found = Scene(make_world(APPLICATIONS), fake_nvml)
    yield found
    found.wait()
    found.world.parts.runner.close()
    found.world.parts.gpu_health.stop()
    until(lambda: fake_nvml.sessions == 0)


def test_devices_and_who_uses_them(scene: Scene) -> None:
    found = scene.view
    assert [(each.type, each.minor, each.id) for each in found.devices] == [
        ("gpu", 0, A),
        ("gpu", 1, B),
        ("xpu", 2, "npu-1"),
        ("rdma", 0, "0000:5e:00.0"),
    ]
    first, second, npu, card = found.devices
    assert first.users == (
        DeviceUserView(
            kind="container",
            name=UID,
            container=BOX,
            processes=1,
            core_percent=30.0,
            memory_bytes=1000 << 20,
        ),
        DeviceUserView(
            kind="application",
            name="batch",
            processes=1,
            core_percent=5.0,
            memory_bytes=200 << 20,
        ),
    )
    assert [(each.kind, each.name) for each in second.users] == [("system", "")]
    assert (first.bus_id, first.pcie_root, first.numa_node) == ("0000:3b:00.0", "pci0000:3a", 1)
    assert (first.core_percent, first.used_bytes) == (35.0, 1800 << 20)
    assert (npu.name, npu.memory_bytes, npu.health) == ("huawei Ascend-910B", 64 << 30, "unknown")
    assert (card.name, card.network_devices, card.ports[0].state) == (
        "mlx5_0",
        ("ens1f0",),
        "ACTIVE",
    )
    assert found.gpu_driver == "550.54.15"
    assert {each.feature: each.supported for each in found.capabilities} == {
        "nvml": True,
        "rdma": True,
        "xpu": True,
    }


def test_status_and_doctor_say_what_was_found(scene: Scene) -> None:
    supported = {c.feature: c.supported for c in scene.world.views.status().capabilities}
    assert (supported["nvml"], supported["rdma"]) == (True, True)
    checks = scene.checks()
    assert checks["kernel: nvml"].why.startswith("2 GPUs, driver 550.54.15; a reading takes ")
    until(lambda: scene.state is State.HEALTHY)
    scene.read()
    # Of the accelerator, its file does not say.
    why = "none of 4 is known to be broken; the health of 1 is not known"
    assert scene.checks()["devices"].why == why


def test_a_card_whose_errors_nobody_would_hear_of_is_told(scene: Scene) -> None:
    until(lambda: scene.state is State.HEALTHY)
    scene.fake.add(f"fail nvmlEventSetWait_v2 {Code.UNKNOWN}")
    until(lambda: scene.state is State.UNKNOWN)
    scene.read()
    gpu = scene.view.devices[1]
    why = "events of errors cannot be waited for: nvmlEventSetWait_v2: Unknown Error (999)"
    assert (gpu.health, gpu.why) == ("unknown", f"EventsNotHeard: {why}")
    assert f"  gpu 1: EventsNotHeard: {why}" in lines(scene.view)
    check = scene.checks()[f"device: {B}"]
    assert (check.state, check.why) == (CheckState.LIMITED, f"EventsNotHeard: {why}")


def test_a_broken_device_is_told(scene: Scene) -> None:
    scene.mark()
    scene.devices.set_state("mlx5_0", "1: DOWN")
    scene.read()
    gpu = scene.view.devices[1]
    assert (gpu.health, gpu.why) == ("unhealthy", "Xid79: the driver reported Xid 79")
    assert gpu.since == pytest.approx(scene.world.host.time(), abs=60)
    checks = scene.checks()
    assert checks[f"device: {B}"].state is CheckState.LIMITED
    assert checks[f"device: {B}"].why == "Xid79: the driver reported Xid 79"
    assert checks["device: mlx5_0"].why == "PortNotActive: port 1 is DOWN"
    assert "devices" not in checks


def test_what_breaks_and_works_again_is_an_event(scene: Scene) -> None:
    scene.mark()
    scene.devices.set_state("mlx5_0", "1: DOWN")
    scene.read()
    scene.devices.set_state("mlx5_0", "4: ACTIVE")
    scene.read()
    told = [text for text in scene.world.texts() if "gpu " in text or "rdma " in text]
    assert told == [
        f"lifecycle gpu {B}: broken: the driver reported Xid 79",
        "lifecycle rdma mlx5_0: broken: port 1 is DOWN",
        "lifecycle rdma mlx5_0: works again",
    ]


def test_the_metrics_page(scene: Scene) -> None:
    scene.mark()
    publish(scene.world.engine, scene.world.views)
    page = b"".join(render(scene.world.parts.metrics, Format.TEXT, Page.EXTERNAL)).decode()
    found = {
        (sample.name.removeprefix("koordlet_"), *_sorted(sample.labels)): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if any(word in sample.name for word in ("gpu", "rdma", "device"))
    }
    first, second, pod = (A, "0"), (B, "1"), ("", "", UID)
    assert found == {
        ("node_gpu_core_usage", *first): 0.0,
        ("node_gpu_core_usage", *second): 0.0,
        ("node_gpu_memory_usage", *first): 1800.0 * (1 << 20),
        ("node_gpu_memory_usage", *second): 640.0 * (1 << 20),
        ("node_gpu_memory_capacity", *first): 81920.0 * (1 << 20),
        ("node_gpu_memory_capacity", *second): 81920.0 * (1 << 20),
        ("pod_gpu_core_usage", *first, *pod): 0.0,
        ("pod_gpu_memory_usage", *first, *pod): 1000.0 * (1 << 20),
        ("container_gpu_core_usage", BOX, "", *first, *pod): 0.0,
        ("container_gpu_memory_usage", BOX, "", *first, *pod): 1000.0 * (1 << 20),
        ("host_application_gpu_core_usage", *first, "batch"): 0.0,
        ("host_application_gpu_memory_usage", *first, "batch"): 200.0 * (1 << 20),
        ("sys_gpu_core_usage", *second): 0.0,
        ("sys_gpu_memory_usage", *second): 40.0 * (1 << 20),
        ("device_healthy", *first, "gpu"): 1.0,
        ("device_healthy", *second, "gpu"): 0.0,
        ("device_healthy", "0000:5e:00.0", "0", "rdma"): 1.0,
    }


def test_the_page_about_devices_names_every_metric() -> None:
    page = (Path(__file__).parents[2] / "docs/concepts/devices.md").read_text()
    families = [each for each in vars(device_metrics).values() if isinstance(each, Family)]
    assert families
    assert [each.name for each in families if f"`koordlet_{each.name}`" not in page] == []


def _sorted(labels: dict[str, str]) -> list[str]:
    return [value for _, value in sorted(labels.items())]


def test_a_reload_keeps_marks(scene: Scene) -> None:
    """It makes all collectors anew."""
    scene.mark()
    before = scene.world.parts.runner
    scene.world.reload(APPLICATIONS + FASTER)
    assert scene.world.parts.runner is not before
    scene.read()
    assert scene.view.devices[1].health == "unhealthy"


def test_switched_off_it_lets_go_of_the_driver(scene: Scene) -> None:
    """So that a card can be reset; then it counts as healthy again."""
    scene.mark()
    scene.world.reload(APPLICATIONS + "[collectors.gpu]\nenable = false\n")
    until(lambda: scene.fake.sessions == 0)
    scene.world.run(2)
    assert [each.type for each in scene.view.devices if each.type == "gpu"] == []
    scene.fake.drop("event")
    scene.world.reload(APPLICATIONS)
    scene.read()
    until(lambda: scene.state is State.HEALTHY)
    scene.read()
    assert scene.view.devices[1].health == "healthy"


def test_a_machine_without_devices(make_world: MakeWorld) -> None:
    world = make_world()
    world.start()
    world.run(2)
    found = world.views.devices()
    assert found.devices == ()
    assert {each.feature: each.supported for each in found.capabilities} == {
        "nvml": False,
        "rdma": False,
        "xpu": False,
    }
    assert not any("device" in each.name for each in world.views.doctor()().checks)
