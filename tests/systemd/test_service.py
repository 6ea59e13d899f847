"""koordlet.service, as it is shipped, under a real systemd in a container."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.systemd.container import REPOSITORY, Container, why_not

pytestmark = [
    pytest.mark.systemd,
    pytest.mark.kernel,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "systemd can be booted here"),
]
TIMEOUT_S = 30.0
SERVICE = "koordlet.service"
CONFIG = """
[[applications]]
name = "web"
systemd_unit = "web.service"
qos = "LS"
"""
WEB = "[Service]\nExecStart=/bin/sleep infinity\n"
DROP_IN = "run/systemd/system/koordlet.service.d/test.conf"


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    files = {
        f"etc/systemd/system/{unit.name}": unit.read_text()
        for unit in (REPOSITORY / "systemd").glob("koordlet*.s*")
    }
    files |= {"etc/koordlet/koordlet.toml": CONFIG, "etc/systemd/system/web.service": WEB}
    with Container(tmp_path_factory.mktemp("container"), files) as booted:
        yield booted


@pytest.fixture
def service(container: Container) -> Iterator[Container]:
    """The service just started, with the configuration as above."""
    container.run("systemctl", "stop", SERVICE, "koordlet-restore.service")
    container.run("systemctl", "reset-failed")
    container.write("etc/koordlet/koordlet.toml", CONFIG)
    container.run("systemctl", "start", SERVICE, "web.service")
    yield container
    container.run("rm", "-f", f"/{DROP_IN}")
    container.run("systemctl", "daemon-reload")


def until(true: Callable[[], object], container: Container) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not true():
        assert time.monotonic() < deadline, container.log(SERVICE)
        time.sleep(0.1)


def status(container: Container) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        container.run("/opt/koordlet/bin/koordlet", "status", "-o", "json").stdout
    )
    return found


def main_pid(container: Container) -> int:
    return int(container.show(SERVICE, "MainPID")["MainPID"])


def test_it_is_active_and_all_its_parts_work_inside_the_sandbox(service: Container) -> None:
    shown = service.show(SERVICE, "ActiveState", "StatusText", "NRestarts", "Slice", "Type")
    assert shown["ActiveState"] == "active"  # with Type=notify: it has said READY=1
    assert shown["Type"] == "notify"
    assert shown["NRestarts"] == "0"
    assert shown["Slice"] == "koordlet.slice"
    assert shown["StatusText"] == "ok; 0 pods and 1 applications"
    found = status(service)
    assert found["ready"] is True
    assert found["problems"] == []
    assert found["journal"]["healthy"] is True
    assert found["tsdb"]["error"] == ""
    assert found["decision_log"]["error"] == ""
    assert {e["name"]: e["listening"] for e in found["endpoints"]} == {
        "api": True,
        "metrics": True,
    }
    assert {"cgroup-tree", "config", "slo"} <= {s["name"] for s in found["sources"]}
    assert "ERROR" not in service.log(SERVICE).upper()


def test_missing_controllers_are_typed_outcomes(service: Container) -> None:
    """The container's v2 tree has no cpu controller: told, with the cost, and no crash."""
    until(lambda: status(service)["capabilities"], service)
    found = status(service)
    assert found["cgroup_layout"] == "v2"
    capabilities = {c["feature"]: c for c in found["capabilities"]}
    quota = capabilities["cpu.cfs_quota_us"]
    assert quota["supported"] is False
    assert quota["why"]
    assert quota["cost"] == "no CPU limits: suppress policy cfsQuota"
    assert capabilities["cgroup.kill"]["supported"] is True
    assert capabilities["inotify-cgroup"]["supported"] is True
    assert capabilities["psi-cgroup"]["supported"] is True


def test_a_unit_is_found_as_an_application_and_noticed_when_it_ends(service: Container) -> None:
    def present() -> bool:
        pods = json.loads(service.run("/opt/koordlet/bin/koordlet", "pods", "-o", "json").stdout)
        (web,) = [pod for pod in pods if pod["name"] == "web"]
        assert web["cgroup"] == "system.slice/web.service"
        return bool(web["present"])

    until(present, service)
    service.run("systemctl", "stop", "web.service")
    until(lambda: not present(), service)
    service.run("systemctl", "start", "web.service")
    until(present, service)


def test_directories_and_their_modes(service: Container) -> None:
    listed = service.run(
        "stat", "-c", "%n %a %U", "/run/koordlet", "/run/koordlet/koordlet.sock",
        "/run/koordlet/private", "/var/lib/koordlet", "/var/lib/koordlet/journal",
    ).stdout.splitlines()  # fmt: skip
    assert listed == [
        "/run/koordlet 755 root",
        "/run/koordlet/koordlet.sock 660 root",
        "/run/koordlet/private 700 root",
        "/var/lib/koordlet 755 root",
        "/var/lib/koordlet/journal 600 root",
    ]


def test_reload(service: Container) -> None:
    before = main_pid(service)
    service.write("etc/koordlet/koordlet.toml", CONFIG + "[daemon]\ntick_seconds = 0.5\n")
    service.run("systemctl", "reload", SERVICE)

    def taken_up() -> bool:
        shown = json.loads(
            service.run("/opt/koordlet/bin/koordlet", "config", "show", "-o", "json").stdout
        )
        return {v["key"]: v["value"] for v in shown["values"]}["daemon.tick_seconds"] == "0.5"

    until(taken_up, service)
    assert main_pid(service) == before


def test_a_hanging_daemon_is_restarted_by_the_watchdog(service: Container) -> None:
    service.write(DROP_IN, "[Service]\nWatchdogSec=2\nRestartSec=100ms\n")
    service.run("systemctl", "daemon-reload")
    service.run("systemctl", "restart", SERVICE)
    before = main_pid(service)
    service.run("kill", f"-{signal.SIGSTOP.value}", str(before))
    until(lambda: service.show(SERVICE, "NRestarts")["NRestarts"] == "1", service)
    until(lambda: service.show(SERVICE, "ActiveState")["ActiveState"] == "active", service)
    assert main_pid(service) != before
    assert status(service)["ready"] is True


def test_kill_9_is_answered_by_a_restart(service: Container) -> None:
    before = main_pid(service)
    service.run("kill", "-9", str(before))
    until(lambda: service.show(SERVICE, "NRestarts")["NRestarts"] == "1", service)
    until(lambda: service.show(SERVICE, "ActiveState")["ActiveState"] == "active", service)
    assert main_pid(service) != before
    assert status(service)["ready"] is True


def test_the_sandbox_has_gpus_and_no_other_devices(container: Container) -> None:
    """Devices without a driver: who may open them hears ENXIO, who may not EPERM, and who does not
    see them ENOENT. The unit as it is shipped, with another program."""
    for name, major in (("nvidiactl", 195), ("nvidia3", 195), ("other", 240)):
        container.run("mknod", "-m", "666", f"/dev/{name}", "c", str(major), "255")
    unit = (REPOSITORY / "systemd" / "koordlet.service").read_text()
    script = "for each in nvidiactl nvidia3 nvidia4 other; do true < /dev/$each; done"
    unit = unit.replace("Type=notify", "Type=oneshot").replace("WatchdogSec=10\n", "")
    for line in ("Restart=on-failure", "RuntimeDirectory=koordlet", "StateDirectory=koordlet"):
        unit = unit.replace(f"{line}\n", "")
    unit = re.sub("ExecStart=.*", f"ExecStart=/bin/sh -c '{script}; exit 0'", unit)
    container.write("run/systemd/system/koordlet-gpu-test.service", unit)
    container.run("systemctl", "daemon-reload")
    container.run("systemctl", "start", "koordlet-gpu-test.service")
    said = [line.partition(": ")[2] for line in container.log("koordlet-gpu-test").splitlines()]
    heard = {line.partition("/dev/")[2] for line in said if "/dev/" in line}
    assert heard == {
        "nvidiactl: No such device or address",
        "nvidia3: No such device or address",
        "nvidia4: No such file",
        "other: No such file",
    }


def test_stop_is_clean(service: Container) -> None:
    service.run("systemctl", "stop", SERVICE)
    shown = service.show(SERVICE, "ActiveState", "Result", "ExecMainStatus")
    assert shown == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}
    assert service.run("test", "-e", "/run/koordlet", check=False).returncode != 0
    assert service.run("test", "-e", "/var/lib/koordlet/journal", check=False).returncode == 0


def test_restore_stops_the_daemon_and_puts_back(service: Container) -> None:
    service.run("systemctl", "start", "koordlet-restore.service")
    assert service.show(SERVICE, "ActiveState", "Result") == {
        "ActiveState": "inactive",
        "Result": "success",
    }
    shown = service.show("koordlet-restore.service", "Result", "ExecMainStatus")
    assert shown == {"Result": "success", "ExecMainStatus": "0"}
    assert "Nothing" in service.log("koordlet-restore.service")


def test_a_bad_configuration_ends_it_with_the_line_in_the_journal(service: Container) -> None:
    service.run("systemctl", "stop", SERVICE)
    service.write("etc/koordlet/koordlet.toml", CONFIG + "[alarms]\npsi = 3\n")
    started = service.run("systemctl", "start", SERVICE, check=False)
    assert started.returncode != 0
    assert "koordlet.toml:7" in service.log(SERVICE)
    service.run("systemctl", "stop", SERVICE)
