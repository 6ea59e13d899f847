"""The daemon as a process on the real kernel, in cgroups that the test makes."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from koordlet.decision.names import shown
from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.kernel.cgroup.cgroups import Unsupported
from tests.daemon.child import (
    KOORDLET,
    Child,
    children,
    fill_cpuset,
    remove,
    until,
    why_not,
)

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "a daemon can be tried here"),
]
QUOTA, IDLE, SHARES = Resource.CPU_QUOTA_US, Resource.CPU_IDLE, Resource.CPU_SHARES
START_CPU_S = 4.0
"""The promise is 2 s; a CPU that is shared takes longer for the same."""
_number = itertools.count()


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    with children(tmp_path, next(_number)) as made:
        yield made


def values(child: Child) -> dict[tuple[str, str], bytes]:
    """What the kernel holds, byte for byte."""
    found = {}
    for cgroup, resource in itertools.product((child.ls, child.be), (QUOTA, IDLE, SHARES)):
        with suppress(Unsupported):  # cpu.idle came with Linux 5.15
            found[cgroup, resource] = child.cgroups.read_raw(cgroup, resource)
    return found


def limited(child: Child) -> bool:
    return child.cgroups.read(child.be, QUOTA) != UNLIMITED


def test_every_command_answers_and_a_stop_keeps_what_is_in_force(child: Child) -> None:
    child.start()
    took_s = child.cpu_s()
    assert took_s < START_CPU_S
    before = child.rss_mib()
    until(lambda: limited(child), "best effort is limited")
    status = child.ask("status")
    print(f"ready after {took_s:.2f} s of CPU, RSS {before:.0f} then {child.rss_mib():.0f} MiB")
    assert status["node"] == "test-node"
    assert status["ready"] is True
    assert status["problems"] == []
    assert status["journal"]["entries"] > 0
    assert {e["name"] for e in status["endpoints"] if e["listening"]} == {"api", "metrics"}
    pods = {pod["name"]: pod for pod in child.ask("pods")}
    assert pods["batch"]["cgroup"] == child.be
    until(lambda: _pods(child)["batch"]["cpu_cores"], "the burner is measured")
    assert child.ask("top", "--once")["node"] == "test-node"
    explained = child.ask("explain", "batch")
    assert any(d["result"] == "written" for d in explained["decisions"])
    answer = child.ask("query", "host_application_cpu_usage", "host_app_name=batch")
    assert answer["series"][0]["count"] > 0
    assert any(e["subject"] == "application batch" for e in _events(child))
    assert "koordlet_ready 1" in _page(child)
    assert child.stop() == 0
    assert limited(child)
    assert child.cli("status", check=False).returncode == 3
    assert not (child.run_dir / "koordlet.sock").exists()
    assert child.restore().returncode == 0
    assert not limited(child)


def test_the_past_is_told_by_the_daemon_and_by_what_it_has_left(
    child: Child, tmp_path: Path
) -> None:
    child.start()
    until(lambda: limited(child), "best effort is limited")
    began = time.time()
    asked = ("query", "host_application_cpu_usage", "host_app_name=batch", "--step", "1s")
    when = ("--from", f"@{began - 1:.3f}", "--to")

    def measured() -> list[float]:
        (series,) = child.ask(*asked, *when, "now")["series"] or ({"values": []},)
        return [value for value in series["values"] if value is not None]

    until(lambda: len(measured()) >= 5, "the burner is measured for some seconds")
    when = (*when, f"@{began + 2:.3f}")
    live = child.ask(*asked, *when)["series"]
    top = child.ask("top", "--at", f"@{began + 1:.3f}", "--once")
    assert {pod["name"]: pod["qos"] for pod in top["pods"]} == {"shop": "LS", "batch": "BE"}
    pages = [tmp_path / "live.html", tmp_path / "left.html"]
    done = child.cli("report", "--from", "1m", "-o", str(pages[0]))
    assert "Incident on test-node" in done.stdout
    child.stop()
    left = child.local(*asked, *when, "-o", "json")
    assert "Reading what it has left in" in left.stderr
    # What is on disk has 14 significant bits.
    for one, other in zip(live, msgspec.json.decode(left.stdout)["series"], strict=True):
        assert other["values"] == [
            v if v is None else pytest.approx(v, 1e-4) for v in one["values"]
        ]
    done = child.local("report", "--from", "2m", "-o", str(pages[1]))
    assert done.returncode == 0, done.stderr
    for page in pages:
        assert page.read_text().endswith("</body></html>\n")
        assert "cpu.cfs_quota_us" in page.read_text()


def test_a_stop_restores_where_that_is_asked_for(child: Child) -> None:
    before = values(child)
    child.configure(on_stop="restore")
    child.start()
    until(lambda: values(child) != before, "something is written")
    code = child.stop(signal.SIGINT)
    assert code == 0
    assert values(child) == before


def test_after_kill_9_restore_puts_everything_back(child: Child) -> None:
    before = values(child)
    child.start()
    until(lambda: limited(child), "best effort is limited")
    code = child.stop(signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert values(child) != before
    done = child.restore()
    assert done.returncode == 0, done.stderr
    assert values(child) == before
    child.start()  # the sockets of the dead one are replaced
    assert child.ask("status")["ready"] is True
    until(lambda: limited(child), "best effort is limited again")


def test_restore_by_the_daemon_is_a_pause(child: Child) -> None:
    before = values(child)
    child.start()
    until(lambda: limited(child), "best effort is limited")
    done = child.restore()
    assert done.returncode == 0, done.stderr
    assert "`koordlet resume`" in done.stdout
    assert values(child) == before
    (pause,) = child.ask("status")["pauses"]
    assert pause["reason"] == "koordlet restore"
    assert child.ask("config", "reload")["ok"] is True
    seconds_pass(child, 3)
    assert values(child) == before
    child.cli("resume")
    until(lambda: limited(child), "best effort is limited again")


def test_a_pause_outlives_reload_kill_9_and_restart(child: Child) -> None:
    before = values(child)
    child.start()
    until(lambda: limited(child), "best effort is limited")
    done = child.cli("pause", "--reason", "disk swap", "--for", "1h")
    assert "Nothing of this is written until `koordlet resume`" in done.stdout
    assert values(child) == before
    (pause,) = child.ask("status")["pauses"]
    assert re.fullmatch(r"(\S+ as )?root \(pid \d+\)", pause["by"])
    assert pause["reason"] == "disk swap"
    assert 3500 < pause["left_s"] <= 3600
    assert "koordlet_paused{" in _page(child)
    os.utime(child.config)
    child.send(signal.SIGHUP)
    seconds_pass(child, 3)
    assert values(child) == before
    child.stop(signal.SIGKILL)
    child.start()
    seconds_pass(child, 3)
    assert values(child) == before
    assert child.ask("status")["pauses"][0]["by"] == pause["by"]
    assert "level=warning event=paused" in child.log()
    assert 'level=warning event="still paused"' in child.log()
    assert child.cli("resume").returncode == 0
    until(lambda: limited(child), "best effort is limited again")
    child.stop(signal.SIGKILL)
    # Without a daemon the command does it all, and the next start comes up paused.
    done = child.local("pause", "--reason", "night")
    assert done.returncode == 0, done.stderr
    assert values(child) == before
    child.start()
    seconds_pass(child, 3)
    assert values(child) == before
    child.stop()
    assert child.local("resume").returncode == 0
    child.start()
    until(lambda: limited(child), "best effort is limited again")


def test_a_pause_reaches_a_daemon_that_nobody_can_ask(child: Child) -> None:
    """A cleaner has removed its socket, say."""
    before = values(child)
    child.start()
    until(lambda: limited(child), "best effort is limited")
    os.unlink(child.socket)
    done = child.local("pause")
    assert done.returncode == 1
    assert "does not answer" in done.stderr
    until(lambda: values(child) == before, "it has read the file")


def seconds_pass(child: Child, seconds: int) -> None:
    """As the daemon counts them: until so many more ticks have ended."""
    ticks = _ticks(child)
    until(lambda: _ticks(child) >= ticks + seconds, f"{seconds} more ticks")


def _ticks(child: Child) -> float:
    (count,) = re.findall(r"^koordlet_tick_duration_seconds_count (\S+)$", _page(child), re.M)
    return float(count)


def test_reload_by_signal_and_by_a_changed_file(child: Child) -> None:
    child.start()
    child.configure("[strategies.cpu-suppress]\nenable = false\n")
    child.send(signal.SIGHUP)
    until(lambda: not limited(child), "the limit is taken away")
    child.configure("[strategies.cpu-supress]\nenable = false\n")
    until(lambda: child.ask("status")["config"]["error"], "the bad file is seen")
    assert 'did you mean "cpu-suppress"?' in child.ask("status")["config"]["error"]
    assert child.cli("config", "reload", check=False).returncode == 1
    child.configure()
    until(lambda: not child.ask("status")["config"]["error"], "the good file is seen")
    until(lambda: limited(child), "best effort is limited again")
    shown = {v["key"]: v for v in child.ask("config", "show")["values"]}
    assert shown["strategies.cpu-suppress.enable"]["origin"] == "default"


def test_observe_writes_nothing(child: Child) -> None:
    before = values(child)
    child.start("--observe")
    until(lambda: child.ask("explain", "batch")["decisions"], "something would be written")
    assert values(child) == before
    assert {d["result"] for d in child.ask("explain", "batch")["decisions"]} == {"would-write"}


def test_a_second_one_is_refused_in_plain_words(child: Child) -> None:
    child.start()
    second = subprocess.run(
        [*KOORDLET, "run", "--config", str(child.config)],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert second.returncode == 1
    assert "another koordlet runs" in second.stderr
    assert "journal" in second.stderr
    assert "Traceback" not in second.stderr
    assert child.ask("status")["ready"] is True


def test_the_watchdog_is_fed(child: Child) -> None:
    child.start(watchdog_us=1_000_000)
    heard = [child.heard() for _ in range(4)]
    assert "WATCHDOG=1" in heard


def test_an_address_in_use_is_shown_and_nothing_more(child: Child) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        child.configure(listen=f"127.0.0.1:{taken.getsockname()[1]}")
        child.start()
        ends = {e["name"]: e for e in child.ask("status")["endpoints"]}
        assert ends["metrics"]["listening"] is False
        assert "in use" in ends["metrics"]["error"]
        until(lambda: limited(child), "best effort is limited")


def test_a_bad_configuration_at_the_start_names_the_line(child: Child) -> None:
    child.configure("[alarms]\npsi = 3\n")
    started = subprocess.run(
        [*KOORDLET, "run", "--config", str(child.config)],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert started.returncode == 1
    assert f"{child.config}:" in started.stderr
    assert "alarms.psi" in started.stderr


@pytest.fixture
def tiny_disk(child: Child) -> Iterator[Path]:
    """A tmpfs of 256 KiB as the state directory."""
    child.state.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(child.state)], check=False
    )
    if mounted.returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        yield child.state
    finally:
        if child.process is not None:
            child.stop(signal.SIGKILL)
        subprocess.run(["umount", str(child.state)], check=True)


def test_a_full_disk_at_the_start(child: Child, tiny_disk: Path) -> None:
    """It measures and shows; nothing is written, since no original could be recorded."""
    _fill(tiny_disk)
    before = values(child)
    child.start()
    until(lambda: not child.ask("status")["journal"]["healthy"], "the journal is refused")
    assert "No space left" in child.ask("status")["journal"]["why"]
    assert values(child) == before
    until(lambda: _pods(child)["batch"]["cpu_cores"], "the burner is measured all the same")
    (tiny_disk / "filler").unlink()
    until(lambda: limited(child), "with room again best effort is limited")
    assert child.ask("status")["journal"]["healthy"] is True


def test_a_disk_that_fills_up_later(child: Child, tiny_disk: Path) -> None:
    before = values(child)
    child.start()
    until(lambda: limited(child), "best effort is limited")
    _fill(tiny_disk)
    toggle = itertools.cycle((0.9, 1.0))

    def recorded_in_vain() -> bool:
        child.configure(f"[alarms]\npsi_stall_percent = {15 + next(toggle)}\n")
        child.cli("config", "reload")  # something to record
        return bool(child.ask("status")["decision_log"]["error"])

    until(recorded_in_vain, "the log is kept in memory")
    status = child.ask("status")
    assert status["ready"] is True
    # A minute of the inputs log may end meanwhile, and cannot be written either.
    assert {p["part"] for p in status["problems"]} <= {"inputs"}
    done = child.restore()
    assert done.returncode == 0, done.stderr
    assert values(child) == before


def _fill(directory: Path) -> None:
    with (directory / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            os.fsync(file.fileno())


def _pods(child: Child) -> dict[str, dict[str, object]]:
    return {pod["name"]: pod for pod in child.ask("pods")}


def _events(child: Child) -> list[dict[str, object]]:
    lines = child.cli("events", "-o", "json").stdout.splitlines()
    return [msgspec.json.decode(line) for line in lines]


def _page(child: Child) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(child.run_dir / "metrics.sock"))
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: client.recv(65536), b"")).decode()


NAMES = (
    *(b"\xff\xfe", b"caf\xe9", b"a b", b"a\\b", b"\x1b[2Jm", b"\t"),
    *("\u202egnp".encode(), b"\xed\xa0\x80"),
)


@pytest.fixture
def odd(child: Child) -> Iterator[list[str]]:
    """Cgroups below the best-effort one with such names, in every hierarchy, each in the one
    before; on v1 with a CPU list."""
    made: list[str] = []
    path = child.be
    for name in NAMES:
        path = f"{path}/{os.fsdecode(name)}"
        made.append(path)
    roots = [Path(root) for root in child.cgroups.layout.roots]
    try:
        for root, cgroup in itertools.product(roots, made):
            (root / cgroup).mkdir()
            fill_cpuset(root, cgroup)
        yield made
    finally:
        for root, cgroup in itertools.product(roots, reversed(made)):
            remove(root / cgroup)


def test_names_that_are_no_text(child: Child, odd: list[str]) -> None:
    text = child.config.read_text()
    is_v1 = "cpuset" in child.cgroups.layout.v1
    if is_v1:
        text = text.replace('"cfsQuota"', '"cpuset"\ncpuSuppressThresholdPercent = 1')
    child.config.write_text(text)
    resource = Resource.CPUSET_CPUS if is_v1 else QUOTA
    watched = [child.be, *(odd if is_v1 else ())]
    before = {cgroup: child.cgroups.read_raw(cgroup, resource) for cgroup in watched}
    child.start()
    until(
        lambda: all(child.cgroups.read_raw(c, resource) != raw for c, raw in before.items()),
        "all of them are limited",
    )
    for command in ("status", "pods", "events"):
        child.cli(command)
    explained = child.ask("explain", shown(watched[-1]))
    assert any(d["cgroup"] == shown(watched[-1]) for d in explained["decisions"])
    assert child.cli("explain", watched[-1]).stdout.isascii()
    assert "koordlet_ready 1" in _page(child)
    assert child.ask("status")["problems"] == []
    child.stop(signal.SIGKILL)
    environ = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [*KOORDLET, "restore", "--config", str(child.config)]
    dry = subprocess.run([*command, "--dry-run"], capture_output=True, env=environ, check=True)
    assert b"\x1b" not in dry.stdout and b"\xff" not in dry.stdout
    done = child.restore()
    assert done.returncode == 0, done.stderr
    assert {cgroup: child.cgroups.read_raw(cgroup, resource) for cgroup in watched} == before
