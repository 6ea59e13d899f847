"""koordlet.service on a bare node with a real systemd that has real controllers.

One node, one story: the tests run in this order, from `tools/install-service` to its `--remove`.
Drop-ins give an emulated CPU, twenty times slower than a real one, the time it needs. The guest has
no network: the environment that is installed into finds the packages that koordlet needs, and what
builds koordlet, in the environment of the tests.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from koordlet.admin.strategies import StrategyState
from koordlet.cli.main import main
from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.systemd,
    pytest.mark.skipif(
        "KOORDLET_GUEST" not in os.environ or not Path("/run/systemd/system").is_dir(),
        reason="for the guests of make test-vm: it installs a service",
    ),
]

REPOSITORY = Path(__file__).resolve().parents[2]
UNITS = Path("/etc/systemd/system")
INSTALLER = REPOSITORY / "tools" / "install-service"
# Not the default, which is where the guest has the environment of these tests.
PREFIX = Path("/opt/installed")
COMMAND = Path("/usr/local/bin/koordlet")
CONFIG_FILE = Path("/etc/koordlet/koordlet.toml")
# "0" for "no isolation" is how pip reads an option that switches something off. To compile modules
# takes an emulated CPU half a minute, and the host has done it.
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_COMPILE": "0"}
SERVICE = "koordlet.service"
TIMEOUT_S = 120.0
KNOB = Path("/proc/sys/vm/watermark_scale_factor")
UNIT_BE, OWN_BE = "batch.slice", "nightly"
WATCHED = (Resource.CPU_QUOTA_US, Resource.CPU_SHARES, Resource.CPU_IDLE, Resource.CPUSET_CPUS)
CONFIG = """
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressThresholdPercent = 50
cpuSuppressPolicy = "{policy}"
[slo.resourceQOSStrategy.beClass.cpuQOS]
enable = true
[slo.systemStrategy]
watermarkScaleFactor = 151
[[applications]]
name = "shop"
systemd_unit = "shop.service"
qos = "LS"
[[applications]]
name = "batch"
systemd_unit = "batch.slice"
qos = "BE"
[[applications]]
name = "nightly"
cgroup = "nightly"
qos = "BE"
[[applications]]
name = "plain"
systemd_unit = "plain.service"
qos = "BE"
"""
# One thread of the host runs all CPUs of the guest: what spins on one of them slows all the others.
_IDLE = "[Service]\nExecStart=/bin/sleep infinity\n"
FILES = {
    # What systemd enables a controller for; AllowedCPUs= has an effect on v2 alone.
    "shop.service": _IDLE + "CPUWeight=100\n",
    "batch.slice": "[Slice]\nCPUWeight=50\nAllowedCPUs=0-3\n",
    "batch.service": _IDLE + "Slice=batch.slice\nCPUWeight=100\n",
    "plain.service": _IDLE,
    f"{SERVICE}.d/emulated.conf": (
        "[Service]\nTimeoutStartSec=120\nTimeoutStopSec=60\nWatchdogSec=60\n"
    ),
    "koordlet-restore.service.d/emulated.conf": "[Service]\nTimeoutStartSec=120\n",
    "koordlet.slice.d/emulated.conf": "[Slice]\nCPUQuota=\n",
}


class Node:
    def __init__(self) -> None:
        self.host = LinuxHost()
        self.layout = detect(self.host)
        self.cgroups = Cgroups(self.host, self.layout)
        self.v2 = self.layout.kind == "v2"
        self.found: dict[tuple[str, Resource], bytes] = {}
        self.knob = KNOB.read_text()
        self.fed = ""

    def values(self) -> dict[tuple[str, Resource], bytes]:
        """What the kernel holds, byte for byte."""
        held = {}
        for cgroup in (UNIT_BE, OWN_BE):
            for resource in WATCHED:
                try:
                    held[cgroup, resource] = self.cgroups.read_raw(cgroup, resource)
                except Unsupported:
                    continue
        return held

    def is_as_found(self) -> None:
        assert KNOB.read_text() == self.knob != "151\n"
        now = self.values()
        for key, value in self.found.items():
            if key == (OWN_BE, Resource.CPUSET_CPUS) and not value.strip():
                continue  # "as the parent" comes back as all CPUs: docs/concepts/actuator.md
            assert now[key] == value, key

    def limited(self, cgroup: str) -> bool:
        value = self.cgroups.read(cgroup, Resource.CPU_QUOTA_US)
        return isinstance(value, int) and value > 0


def run(
    *command: str,
    check: bool = True,
    env: dict[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, env=env
    )
    assert not check or done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def ask(*arguments: str, answer: Callable[..., tuple[int, str]] | None = None) -> Any:
    """Asked again where the daemon took longer to answer than the command waits (exit code 3)."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        code, said = (answer or here)(*arguments, "-o", "json")
        if code != 3 or time.monotonic() > deadline:
            assert code == 0, (arguments, said)
            return json.loads(said)


def here(*arguments: str) -> tuple[int, str]:
    """The command in this process: an emulated CPU takes ten seconds to start the installed one."""
    said = io.StringIO()
    with redirect_stdout(said):
        code = main(arguments)
    return code, said.getvalue()


def installed(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout or done.stderr


def show(name: str) -> str:
    return run("systemctl", "show", SERVICE, "--value", f"--property={name}").strip()


def journal(*more: str) -> str:
    return run("journalctl", "--no-pager", "-o", "cat", "-u", SERVICE, *more)


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not true():
        assert time.monotonic() < deadline, f"never happened: {what}\n{journal()[-4000:]}"
        time.sleep(0.2)


def install() -> None:
    run("/usr/bin/python3", "-m", "venv", "--without-pip", str(PREFIX))
    (site,) = PREFIX.glob("lib/python3*/site-packages")
    (site / "packages.pth").write_text(sysconfig.get_path("purelib"))
    began = time.monotonic()
    print(run(str(INSTALLER), str(PREFIX), env={**os.environ, **OFFLINE}, timeout_s=280))
    for compiled in (REPOSITORY / "koordlet").rglob("__pycache__"):
        shutil.copytree(compiled, site / compiled.relative_to(REPOSITORY), dirs_exist_ok=True)
    print(f"installed in {time.monotonic() - began:.1f} s")


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """Installed and not started; two best-effort groups and a service are there."""
    made = Node()
    install()
    for name, content in FILES.items():
        (UNITS / name).parent.mkdir(exist_ok=True)
        (UNITS / name).write_text(content)
    CONFIG_FILE.write_text(CONFIG.format(policy="cfsQuota"))
    run("systemctl", "daemon-reload")
    run("systemctl", "start", "shop.service", "batch.service", "plain.service")
    sleeper = None
    try:
        for root in made.layout.roots:
            Path(root, OWN_BE).mkdir()
        if (cpuset := made.layout.v1.get("cpuset")) is not None:
            for file in ("cpuset.cpus", "cpuset.mems"):
                Path(cpuset, OWN_BE, file).write_text(Path(cpuset, file).read_text())
        sleeper = subprocess.Popen(["sleep", "infinity"])
        for root in made.layout.roots:
            Path(root, OWN_BE, "cgroup.procs").write_text(str(sleeper.pid))
        made.found = made.values()
        yield made
    finally:
        if sleeper is not None:
            sleeper.kill()
            sleeper.wait()
        run("systemctl", "stop", SERVICE, check=False)  # it may have been removed
        run("systemctl", "stop", "shop.service", "batch.service", "plain.service")
        for root in made.layout.roots:
            if Path(root, OWN_BE).exists():
                Path(root, OWN_BE).rmdir()


def test_it_is_installed(node: Node) -> None:
    assert COMMAND.resolve() == PREFIX / "bin" / "koordlet"
    shown = run("systemctl", "cat", SERVICE, "koordlet-restore.service")
    assert f"ExecStart={PREFIX}/bin/koordlet run" in shown
    assert f"ExecStart={PREFIX}/bin/koordlet restore" in shown
    assert (PREFIX / "share/doc/koordlet/README.md").exists()
    assert list(PREFIX.glob("lib/python3*/site-packages/koordlet/cli/main.py"))


def test_it_starts_and_says_so(node: Node) -> None:
    run(str(COMMAND), "config", "check", str(CONFIG_FILE))
    began = time.monotonic()
    run("systemctl", "enable", "--now", SERVICE)
    print(f"READY=1 after {time.monotonic() - began:.1f} s")
    node.fed = show("WatchdogTimestampMonotonic")
    assert show("ActiveState") == "active"  # with Type=notify: it has said READY=1
    until(lambda: "4 applications" in show("StatusText"), "the status line tells the applications")


def test_values_are_in_force_in_the_kernel(node: Node) -> None:
    until(lambda: node.limited(UNIT_BE), "the slice has a quota")
    until(lambda: node.limited(OWN_BE), "the cgroup of nobody has a quota")
    until(lambda: KNOB.read_text() == "151\n", "a knob of the whole machine is set")
    shares = node.cgroups.read_raw(UNIT_BE, Resource.CPU_SHARES).strip()
    until(lambda: node.cgroups.read(OWN_BE, Resource.CPU_IDLE) == 1, "nobody's cgroup is idle")
    until(
        lambda: (
            node.cgroups.read_raw(UNIT_BE, Resource.CPU_SHARES).strip()
            == (b"1" if node.v2 else b"2")
        ),
        f"the slice has the smallest weight and not {shares!r}",
    )
    if node.v2:
        quota, period = Path(f"/sys/fs/cgroup/{UNIT_BE}/cpu.max").read_text().split()
        assert 0 < int(quota) < 4 * int(period)
        assert Path(f"/sys/fs/cgroup/{OWN_BE}/cpu.idle").read_text() == "1\n"
    else:
        assert int(Path(f"/sys/fs/cgroup/cpu/{UNIT_BE}/cpu.cfs_quota_us").read_text()) > 0
        assert Path(f"/sys/fs/cgroup/cpu/{OWN_BE}/cpu.idle").read_text() == "1\n"


def test_status_pods_strategies_and_doctor_answer(node: Node) -> None:
    status = ask("status", answer=installed)
    assert status["cgroup_layout"] == node.layout.kind
    assert status["ready"] is True
    assert status["journal"]["entries"] > 0
    assert {e["name"] for e in status["endpoints"] if e["listening"]} == {"api", "metrics"}
    capabilities = {c["feature"]: c for c in status["capabilities"]}
    for feature in ("psi-trigger-2s", "psi-trigger-500ms", "cgroup.kill", Resource.CPU_IDLE):
        assert capabilities[feature]["supported"], capabilities[feature]
    # Debian's 6.12 has MGLRU on; the unit lets its file in debugfs be written.
    for feature in ("clear-refs", "memory.refaults", *(["mglru"] * (node.layout.kind == "v2"))):
        assert capabilities[feature]["supported"], capabilities[feature]
    pods = {pod["name"]: pod for pod in ask("pods")}
    assert pods["batch"]["cgroup"] == UNIT_BE
    assert pods["shop"]["cgroup"] == "system.slice/shop.service"
    assert all(pod["present"] for pod in pods.values())
    strategies = {each["name"]: each for each in ask("strategies")["strategies"]}
    assert strategies["cpu-suppress"]["state"] == StrategyState.ACTIVE, strategies["cpu-suppress"]
    checks = ask("doctor")["checks"]
    failed = [check for check in checks if check["state"] == "fail"]
    assert not failed
    assert {check["name"]: check["state"] for check in checks}["daemon"] == "ok"
    # The unit leaves the daemon CAP_SYS_RESOURCE: triggers of half a second.
    alarms = {alarm["name"]: alarm for alarm in status["alarms"]}
    assert alarms["psi system.slice/shop.service"]["mechanism"] == "psi-trigger"
    print("problems:", *status["problems"], sep="\n  ")
    print("refused:", *status["refused_inputs"], sep="\n  ")


def test_the_watchdog_is_fed(node: Node) -> None:
    until(lambda: show("WatchdogTimestampMonotonic") != node.fed, "the watchdog is fed")


def test_a_stop_keeps_what_is_in_force_and_restore_puts_it_back(node: Node) -> None:
    run("systemctl", "stop", SERVICE)
    assert show("Result") == "success"
    assert node.limited(UNIT_BE) and node.limited(OWN_BE)
    run("systemctl", "start", "koordlet-restore.service")
    assert show("ActiveState") == "inactive"
    node.is_as_found()
    run("systemctl", "start", SERVICE)
    assert ask("status")["ready"] is True
    until(lambda: node.limited(UNIT_BE) and node.limited(OWN_BE), "it is in force again")
    until(lambda: node.cgroups.read(OWN_BE, Resource.CPU_IDLE) == 1, "nobody's cgroup is idle")


def test_after_kill_9_systemd_starts_it_again(node: Node) -> None:
    before = show("MainPID")
    os.kill(int(before), signal.SIGKILL)
    until(lambda: show("NRestarts") == "1" and show("ActiveState") == "active", "it is back")
    assert show("MainPID") not in (before, "0")
    assert node.limited(UNIT_BE) and node.limited(OWN_BE)
    assert node.cgroups.read(OWN_BE, Resource.CPU_IDLE) == 1


def test_suppress_by_cpuset_takes_siblings(node: Node) -> None:
    if (OWN_BE, Resource.CPUSET_CPUS) not in node.values():
        pytest.fail("no cpuset controller below the root")
    CONFIG_FILE.write_text(CONFIG.format(policy="cpuset"))
    run("systemctl", "reload", SERVICE)
    cpus = node.cgroups.path(OWN_BE, Resource.CPUSET_CPUS)
    until(lambda: Path(cpus).read_text().strip() in ("0-1", "2-3"), "BE is confined to a core")
    assert not node.limited(OWN_BE)
    if node.v2:
        held = Path(f"/sys/fs/cgroup/{UNIT_BE}/cpuset.cpus").read_text()
        assert held == Path(cpus).read_text()


def test_the_journal_of_the_service_has_no_errors(node: Node) -> None:
    """But that the servers had no time to close: a stop waits one second, of a real CPU."""
    said = [line for line in journal().splitlines() if "part=servers" not in line]
    assert not [line for line in said if "level=error" in line or "Traceback" in line]
    oom = run("journalctl", "--no-pager", "-o", "cat", "-k", "--grep", "oom-kill", check=False)
    assert not oom


def test_remove_puts_everything_back_and_leaves_the_configuration(node: Node) -> None:
    print(run(str(INSTALLER), "--remove", str(PREFIX)))
    node.is_as_found()
    assert show("LoadState") == "not-found"
    assert show("ActiveState") == "inactive"
    shipped = {unit.name for unit in (REPOSITORY / "systemd").glob("koordlet*.s*")}
    left = [path for path in UNITS.rglob("*") if path.name in shipped]
    places = [COMMAND, PREFIX, Path("/run/koordlet"), Path("/etc/runtime")]
    places += [Path(root, "koordlet.slice") for root in node.layout.roots]
    left += [path for path in places if os.path.lexists(path)]
    assert not left
    assert CONFIG_FILE.exists()
