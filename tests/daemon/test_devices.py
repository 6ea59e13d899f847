"""A daemon as a process that finds the stand-in of NVIDIA's library as it finds the real one."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from koordlet.decision.resource import Resource
from koordlet.kernel.proc.members import ids_in
from tests.daemon.child import Child, children, until, why_not
from tests.kernel.devices.fake_nvml import TWO, A, B, FakeNvml, fake_nvml, nvml_library

__all__ = ["fake_nvml", "nvml_library"]
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "a daemon can be tried here"),
]
OFTEN = "\n[collectors.gpu]\ninterval_seconds = 0.5\n"
_number = itertools.count(900)


@pytest.fixture
def child(tmp_path: Path, fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_nvml.library.parent))
    with children(tmp_path, next(_number)) as made:
        made.configure(OFTEN)
        yield made


def devices(child: Child) -> dict[str, Any]:
    """It ends with 1 while one of them is broken."""
    found: dict[str, Any] = json.loads(child.cli("devices", "-o", "json", check=False).stdout)
    return found


def gpus(child: Child) -> dict[str, Any]:
    return {each["id"]: each for each in devices(child)["devices"] if each["type"] == "gpu"}


def test_a_process_on_a_gpu_is_its_applications(child: Child, fake_nvml: FakeNvml) -> None:
    fake_nvml.say(*TWO)
    for pid in ids_in(child.cgroups, child.be, Resource.PROCS):
        fake_nvml.add(f"proc 0 {pid} 1000 compute")
    child.start()
    until(lambda: A in gpus(child) and gpus(child)[A]["users"], "the GPU has a user")
    (user,) = gpus(child)[A]["users"]
    assert (user["kind"], user["name"], user["memory_bytes"]) == (
        "application",
        "batch",
        1000 << 20,
    )
    answer = child.ask("query", "host_application_gpu_memory_usage")
    assert answer["series"][0]["value"] == 1000 << 20  # type: ignore[index]
    until(lambda: gpus(child)[B]["health"] == "healthy", "events are waited for")
    fake_nvml.add("event 1 1 79")
    until(lambda: gpus(child)[B]["health"] == "unhealthy", "the Xid is heard")
    assert child.cli("devices", check=False).returncode == 1
    assert "Xid79" in child.cli("doctor", check=False).stdout
    assert child.stop() == 0


def test_a_driver_that_hangs_stops_neither_the_loop_nor_the_end(
    child: Child, fake_nvml: FakeNvml
) -> None:
    fake_nvml.say(*TWO, "hang nvmlDeviceGetMemoryInfo", "hang nvmlEventSetWait_v2")
    child.start()

    def outcome() -> str:
        found = {each["feature"]: each["why"] for each in devices(child)["capabilities"]}
        return str(found.get("nvml", ""))

    until(lambda: "has not answered" in outcome(), "the hang is noticed")
    collectors: Any = child.ask("status")["collectors"]
    found = {each["name"]: each for each in collectors}
    assert "has not answered" in found["gpu"]["error"]
    assert found["node"]["success"] and found["node"]["staleness_s"] < 60
    assert child.stop() == 0


def test_doctor_without_a_daemon_tries_it(child: Child, fake_nvml: FakeNvml) -> None:
    fake_nvml.say(*TWO)
    assert "2 GPUs, driver 550.54.15" in child.local("doctor", "-v").stdout
    fake_nvml.add("fail nvmlInit_v2 18")
    text = child.local("doctor", "-v").stdout
    assert "Driver/library version mismatch (18)" in text
    assert "load the modules nvidia* anew" in text
