"""koordlet beside a real systemd that sets its units' files again: kubelet's slices with a pod, and
applications that go through systemd.

One node, one story, in this order. What kubelet does through systemd, `systemctl` does here. An
emulated CPU is twenty times slower than a real one, so bounds of time are wide, and what counts is
counted.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from koordlet.actuator.units import FILE_NAME
from koordlet.cli.main import main
from koordlet.kernel.unit_properties import INFINITY, BusUnitProperties
from tests.daemon.child import Child
from tests.daemon.child import until as until_within
from tests.daemon.everything import OPT_IN, SLO

CGROUPS = Path("/sys/fs/cgroup")
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.systemd,
    pytest.mark.skipif(
        "KOORDLET_GUEST" not in os.environ
        or not Path("/run/systemd/system").is_dir()
        or not (CGROUPS / "cgroup.controllers").exists(),
        reason="for the guests of make test-vm: it makes units of systemd, on cgroup v2",
    ),
]

SLICE = "kubepods-besteffort.slice"
BE = CGROUPS / "kubepods.slice" / SLICE
POD = "kubepods-besteffort-pod00000000_0000_0000_0000_000000000001.slice"
SCOPE = f"cri-containerd-{'c' * 64}.scope"
BATCH = CGROUPS / "system.slice" / "crunch.service"
TIMEOUT_S = 250.0
WRITTEN_AGAIN_WITHIN_S = 5.0
"""One on a real CPU. The turn that looks at each file comes every ten seconds."""
CONFIG = """
[node]
name = "test-node"
[paths]
state_dir = "{state}"
run_dir = "{run}"
[api]
socket = "{run}/koordlet.sock"
[metrics]
listen = "unix:{run}/metrics.sock"
[[applications]]
name = "shop"
systemd_unit = "store.service"
through_systemd = true
qos = "LS"
memory_request = "64Mi"
[[applications]]
name = "batch"
systemd_unit = "crunch.service"
through_systemd = true
qos = "BE"
memory_limit = "100Mi"
"""
LIMITS = """
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressPolicy = "cfsQuota"
[slo.resourceQOSStrategy.lsClass.memoryQOS]
enable = true
minLimitPercent = 50
[slo.resourceQOSStrategy.beClass.memoryQOS]
enable = true
throttlingPercent = 80
[slo.resourceQOSStrategy.beClass.cpuQOS]
enable = true
groupIdentity = -1
"""
EVERYTHING = SLO.format(cpu_policy="groupIdentity", net_policy="tc") + OPT_IN
# systemd makes files of the controller cpu for units that say something of it.
SERVICE = "[Service]\nExecStart=/bin/sleep infinity\nCPUWeight=90\n"
MIB = 1 << 20


class Values(threading.Thread):
    """The values that a file has had, with the second of each."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path = path
        self._stop = threading.Event()
        self.seen = [(time.monotonic(), path.read_text())]

    def run(self) -> None:
        with self._path.open() as file:
            while not self._stop.wait(0.005):
                file.seek(0)
                text = file.read()
                if text != self.seen[-1][1]:
                    self.seen.append((time.monotonic(), text))

    def stop(self) -> None:
        self._stop.set()
        self.join()
        self.seen.append((time.monotonic(), self.seen[-1][1]))

    def without_limit_s(self) -> list[float]:
        """How long it had no limit, each time."""
        return [
            end - begin
            for (begin, text), (end, _) in zip(self.seen, self.seen[1:], strict=False)
            if text.startswith("max")
        ]


@contextmanager
def watched(path: Path) -> Iterator[Values]:
    values = Values(path)
    values.start()
    try:
        yield values
    finally:
        values.stop()


class Node:
    """``child``: the daemon."""

    def __init__(self, directory: Path) -> None:
        self.child = Child(directory, "", "", timeout_s=TIMEOUT_S)
        self.configure(LIMITS)

    def configure(self, slo: str) -> None:
        paths = {"state": self.child.state, "run": self.child.run_dir}
        self.child.config.write_text(CONFIG.format(**paths) + slo)

    def ask(self, *arguments: str) -> Any:
        """In this process: an emulated CPU takes ten seconds to start a command."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            said = io.StringIO()
            with redirect_stdout(said):
                code = main((*arguments, "--socket", self.child.socket, "-o", "json"))
            if code != 3 or time.monotonic() > deadline:  # 3: it took longer than the command waits
                assert code == 0, (arguments, said.getvalue())
                return json.loads(said.getvalue())

    def start(self) -> None:
        if self.child.process is None:  # else a test is run again
            began = time.monotonic()
            self.child.start()
            print(f"READY=1 after {time.monotonic() - began:.1f} s")

    def fights_nobody(self) -> None:
        conflicts = self.ask("status")["conflicts"]
        assert not conflicts, json.dumps(conflicts, indent=1)


def until(true: Callable[[], object], what: str) -> None:
    until_within(true, what, TIMEOUT_S)


def systemctl(*words: str) -> str:
    done = subprocess.run(
        ["systemctl", *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout.strip()


def known(unit: str, name: str) -> str:
    """What systemd would write."""
    return systemctl("show", unit, "--value", f"--property={name}")


def set_property(unit: str, *assignments: str) -> None:
    systemctl("set-property", "--runtime", unit, *assignments)


def is_limited() -> bool:
    return not (BE / "cpu.max").read_text().startswith("max")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Not started; a best-effort pod and two services are there."""
    for name in ("store.service", "crunch.service"):
        Path("/run/systemd/system", name).write_text(SERVICE)
    systemctl("daemon-reload")
    systemctl("start", "store.service", "crunch.service")
    pod = subprocess.Popen(
        ["systemd-run", "--quiet", "--scope", f"--unit={SCOPE}", f"--slice={POD}",
         "--property=Delegate=yes", "sleep", "infinity"],
    )  # fmt: skip
    until(lambda: (BE / POD / SCOPE).is_dir(), "the pod is there")
    for unit, weight in ((SLICE, 1), ("kubepods-burstable.slice", 80), ("kubepods.slice", 157)):
        systemctl("start", unit)
        set_property(unit, f"CPUWeight={weight}")
    made = Node(tmp_path_factory.mktemp("node"))
    try:
        yield made
    finally:
        print(made.child.log()[-6000:])
        made.child.close()
        pod.kill()
        pod.wait()
        systemctl("stop", "store.service", "crunch.service", "kubepods.slice")


def told_all() -> bool:
    return all(
        known(unit, name) not in ("infinity", "0")
        for unit, name in (
            (SLICE, "CPUQuotaPerSecUSec"),
            ("crunch.service", "MemoryHigh"),
            ("crunch.service", "CPUQuotaPerSecUSec"),
            ("store.service", "MemoryMin"),
        )
    )


def test_systemd_takes_the_period_of_a_quota() -> None:
    unit, properties = "koordletperiod.slice", BusUnitProperties()
    systemctl("start", unit)
    file = Path("/sys/fs/cgroup") / unit / "cpu.max"
    try:
        properties.set(unit, {"CPUQuotaPerSecUSec": 500_000, "CPUQuotaPeriodUSec": 1_000_000})
        until(lambda: file.read_text() == "500000 1000000\n", "the period is a second")
        assert properties.get(unit, ["CPUQuotaPeriodUSec"]) == {"CPUQuotaPeriodUSec": 1_000_000}
        properties.set(unit, {"CPUQuotaPerSecUSec": INFINITY, "CPUQuotaPeriodUSec": INFINITY})
        until(lambda: file.read_text() == "max 100000\n", "both are as they were")
    finally:
        properties.close()
        systemctl("stop", unit)


def test_systemd_forgets_what_it_was_not_told(node: Node) -> None:
    """Why all this is needed."""
    (BE / "cpu.max").write_text("50000 100000")
    set_property(SLICE, "CPUWeight=2")
    assert not is_limited()


def test_it_is_told_what_its_units_shall_hold(node: Node) -> None:
    print("systemd", systemctl("--version").split()[1], "Linux", os.uname().release)
    node.start()
    until(is_limited, "the slice has a quota")
    until(told_all, "systemd knows")
    status = node.ask("status")
    assert {c["feature"]: c for c in status["capabilities"]}["systemd-units"]["supported"]
    print("problems:", *status["problems"], sep="\n  ")
    node.fights_nobody()


def test_what_it_was_told_is_in_force_while_nobody_else_writes(node: Node) -> None:
    files = [BE / "cpu.max", BATCH / "memory.high", BATCH / "cpu.max"]
    files += [BATCH.with_name("store.service") / "memory.min"]
    time.sleep(12)  # a limit that moved is told each 5 s
    node.child.send(signal.SIGSTOP)
    try:
        before = [file.read_text() for file in files]
        assert not [text for text in before if text in ("0\n", "max\n", "max 100000\n")], before
        with watched(files[0]) as values:
            set_property(SLICE, "CPUWeight=3")
            set_property("crunch.service", "TasksMax=1000")
            set_property("store.service", "TasksMax=1000")
            systemctl("daemon-reload")
            time.sleep(1)
        print(values.seen)
        assert not values.without_limit_s()
        after = [file.read_text() for file in files]
        print(before, after)
        for one, other in zip(before, after, strict=True):
            assert other not in ("0\n", "max\n", "max 100000\n"), (one, other)
        assert (BATCH / "cpu.weight").read_text() == "1\n"
    finally:
        node.child.send(signal.SIGCONT)


def test_as_kubelet_updates_its_slices_best_effort_is_never_without_limit(node: Node) -> None:
    with watched(BE / "cpu.max") as values:
        for number in range(20):
            set_property(SLICE, f"CPUWeight={1 + number % 2}")
            set_property("crunch.service", f"TasksMax={900 + number}")
        systemctl("daemon-reload")
        time.sleep(2)
    print(values.seen)
    assert not values.without_limit_s()
    node.fights_nobody()


def test_who_takes_the_limit_away_is_answered_and_is_no_conflict(node: Node) -> None:
    """As an update of the slice that names its quota."""
    took = []
    for _ in range(5):
        with watched(BE / "cpu.max") as values:
            set_property(SLICE, "CPUQuota=")
            time.sleep(3)
        assert is_limited()
        took += values.without_limit_s()
    print("without a limit for", [f"{each:.3f} s" for each in took])
    assert len(took) == 5 and max(took) < WRITTEN_AGAIN_WITHIN_S
    node.fights_nobody()
    until(lambda: known(SLICE, "CPUQuotaPerSecUSec") != "infinity", "systemd knows again")
    explained = node.ask("explain", f"kubepods.slice/{SLICE}")
    assert any(" by right" in each["detail"] for each in explained["decisions"]), explained
    assert any("systemd (set-property)" in each for each in explained["notes"]), explained
    shared = [c for c in node.ask("doctor")["checks"] if c["name"].startswith("shared files")]
    print(json.dumps(shared, indent=1))
    assert any("systemd (set-property)" in each["name"] for each in shared)


def test_pause_gives_it_back(node: Node) -> None:
    node.ask("pause")
    until(lambda: not is_limited(), "the slice has no quota")
    until(lambda: not told_all(), "systemd has forgotten")
    for unit in (SLICE, "crunch.service"):
        assert known(unit, "CPUQuotaPerSecUSec") == "infinity"
    assert known("crunch.service", "MemoryHigh") == "infinity"
    assert known("store.service", "MemoryMin") == "0"
    node.ask("resume")
    until(is_limited, "the slice has a quota again")
    until(told_all, "systemd knows again")


def test_a_stop_keeps_it_and_restore_gives_it_back(node: Node) -> None:
    assert node.child.stop() == 0
    set_property(SLICE, "CPUWeight=1")
    systemctl("daemon-reload")
    assert is_limited() and told_all()
    done = node.child.restore()
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    assert not is_limited()
    for unit in (SLICE, "crunch.service"):
        assert known(unit, "CPUQuotaPerSecUSec") == "infinity"
    assert known("crunch.service", "CPUWeight") == "90"
    assert (BATCH / "cpu.max").read_text() == "max 100000\n"
    assert (BATCH / "cpu.weight").read_text() == "90\n"
    assert (BATCH / "memory.high").read_text() == "max\n"
    assert not json.loads((node.child.state / FILE_NAME).read_text())["properties"]


def test_all_strategies_for_two_minutes_without_a_fight(node: Node) -> None:
    node.configure(EVERYTHING)
    node.start()
    until(is_limited, "the slice has a quota")
    for turn in range(20):
        time.sleep(6)
        if turn % 5 == 4:
            set_property("crunch.service", f"TasksMax={800 + turn}")
            systemctl("daemon-reload")
        node.fights_nobody()
    status = node.ask("status")
    print(json.dumps(status["problems"], indent=1))
    for each in node.ask("strategies")["strategies"]:
        print(each["name"], each["state"])
