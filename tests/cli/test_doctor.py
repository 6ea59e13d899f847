"""doctor: each check by itself, the whole with and without a daemon."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from koordlet.admin import checks
from koordlet.admin.client import NoAccessError
from koordlet.admin.model.doctor import CheckState, CheckView, DoctorView
from koordlet.admin.model.nri import NriView
from koordlet.admin.model.status import JournalView
from koordlet.cli import doctor
from koordlet.cli.main import Exit, main
from koordlet.cli.settings import Settings, find
from koordlet.decision.snapshot import Capability
from koordlet.kernel.host import Host
from koordlet.nri.status import Phase
from tests.admin.fake_daemon import FakeDaemon
from tests.admin.files import Files
from tests.admin.harness import Served


def _proc(*processes: tuple[int, bytes, bytes]) -> Host:
    files = {}
    for pid, comm, cmdline in processes:
        files[f"/proc/{pid}/comm"] = comm + b"\n"
        files[f"/proc/{pid}/cmdline"] = cmdline
    return Files(files | {"/proc/sys/x": b""})  # type: ignore[return-value]


def test_capabilities() -> None:
    found = checks.of_capabilities(
        (
            Capability("cpu.idle", True, "wrote 1"),
            Capability("cpu.idle", False, "no such file", "no idle class"),
            Capability("cpu.cfs_quota_us", False, "EACCES", "no limits"),
            Capability("no remedy known", False, "ENOENT", "something"),
            Capability("cpu.idle", False, "not enabled", "no idle class", "echo +cpu"),
        )
    )
    assert [check.state.value for check in found] == ["ok", "limited", "fail", "limited", "limited"]
    assert found[4].remedy == "echo +cpu"
    assert (found[0].cost, found[0].remedy) == ("", "")
    assert (found[1].cost, found[1].remedy) == ("no idle class", "use a kernel of 5.15 or later")
    assert found[3].remedy


def test_every_remedy_is_for_a_feature_that_is_probed() -> None:
    from koordlet.kernel.probe.probe import FEATURES

    assert set(checks.REMEDIES) | set(checks.ESSENTIAL) <= {str(f.name) for f in FEATURES}


def test_other_managers() -> None:
    alone = checks.other_managers(
        _proc(
            (1, b"systemd", b"/sbin/init\0"),
            (20, b"koordlet", b"/opt/koordlet/bin/python3.11\0/opt/koordlet/bin/koordlet\0run\0"),
        )
    )
    assert [check.state.value for check in alone] == ["ok"]

    others = checks.other_managers(
        _proc(
            (31, b"koordlet", b"/koordlet\0--cgroup-root-dir=/host-cgroup/\0"),
            (30, b"numad", b"/usr/bin/numad\0"),
        )
    )
    assert [(check.name, check.state.value, check.why) for check in others] == [
        ("other managers: koordlet", "fail", "runs as pid 31"),
        ("other managers: numad", "limited", "runs as pid 30"),
    ]
    assert all(check.cost and check.remedy for check in others)


def test_a_process_that_ends_meanwhile_is_no_error() -> None:
    host = _proc((5, b"koordlet", b""))
    del host.files["/proc/5/cmdline"]  # type: ignore[attr-defined]
    assert checks.other_managers(host)[0].state is CheckState.OK


@pytest.mark.parametrize(
    ("files", "state", "text"),
    [
        ((), "limited", "not booted by systemd"),
        (("/run/systemd/system/x",), "limited", "not installed"),
        (
            ("/run/systemd/system/x", "/etc/systemd/system/koordlet.service"),
            "limited",
            "not enabled",
        ),
        (
            ("/run/systemd/system/x", "/usr/lib/systemd/system/koordlet.service", doctor.WANTS),
            "ok",
            "installed and enabled",
        ),
    ],
)
def test_systemd_unit(files: tuple[str, ...], state: str, text: str) -> None:
    check = doctor.systemd_unit(Files(dict.fromkeys(files, b"")))  # type: ignore[arg-type]
    assert check.state.value == state
    assert text in check.why


def test_configuration(tmp_path: Path) -> None:
    assert doctor.configuration(Settings("f", error="f:3: bad")).state is CheckState.FAIL
    assert doctor.configuration(Settings("f", is_default=True)).state is CheckState.LIMITED
    good = tmp_path / "koordlet.toml"
    good.write_text("")
    assert doctor.configuration(find(str(good))).state is CheckState.OK
    assert doctor.configuration(find(str(tmp_path / "no"))).state is CheckState.FAIL


def test_state_directory(tmp_path: Path) -> None:
    assert doctor.state_directory(str(tmp_path / "not-there")).state is CheckState.OK
    tmp_path.chmod(0o700)
    assert doctor.state_directory(str(tmp_path)).state is CheckState.OK
    tmp_path.chmod(0o772)
    check = doctor.state_directory(str(tmp_path))
    assert check.state is CheckState.FAIL
    assert "0772" in check.why


def test_state_of_a_running_daemon() -> None:
    sick = {check.name: check for check in checks.of_status(FakeDaemon().status())}
    assert sick["daemon: ready"].why == "source cgroupfs has not listed yet"
    for name, state in {
        "daemon: configuration": "limited",
        "daemon: journal": "ok",
        "daemon: store": "limited",
        "daemon: decision log": "ok",
        "daemon: metrics on 127.0.0.1:9316": "limited",
        "NRI": "ok",
        "daemon: collector node": "ok",
        "daemon: collector numa": "limited",
        "daemon: source static": "ok",
        "second writer: /sys/fs/cgroup/cpu/kubepods/besteffort/cpu.shares": "limited",
        "refused input: pod shop/web-0": "limited",
        "kernel: cpu.bvt_warp_ns": "limited",
        "kernel: cpu.idle": "ok",
    }.items():
        assert sick[name].state.value == state, name
    assert sick["daemon: collector node"].why.endswith("a round each 1 s, the last one took 0.2 ms")
    broken = msgspec.structs.replace(
        FakeDaemon().status(), journal=JournalView(path="/j", healthy=False, why="ENOSPC")
    )
    lost = NriView(enabled=True, phase="backing-off", socket="/n.sock", last_error="EOF")
    broken = msgspec.structs.replace(broken, nri=lost)
    (check,) = [c for c in checks.of_status(broken) if c.name == "NRI"]
    assert (check.state, check.why) == (
        CheckState.LIMITED,
        "not connected (backing-off): EOF",
    )
    (journal,) = [c for c in checks.of_status(broken) if c.name == "daemon: journal"]
    assert journal.state is CheckState.FAIL


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("phase", list(Phase))
def test_doctor_and_nri_status_say_the_same(
    served: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    phase: Phase,
    enabled: bool,
    awaited: bool,
) -> None:
    view = NriView(
        enabled=enabled,
        phase=phase,
        connected=phase is Phase.CONNECTED,
        socket="/nri.sock",
        awaited=awaited,
    )
    monkeypatch.setattr(FakeDaemon, "nri", lambda self: view)
    served.daemon.checks = checks.of_status(served.daemon.status())
    code = main(["nri", "status", "--socket", served.path])
    said = capsys.readouterr().out
    config = tmp_path / "koordlet.toml"
    config.write_text(f'[paths]\nstate_dir = "{tmp_path}/state"\n')
    main(["doctor", "-o", "json", "--config", str(config), "--socket", served.path])
    found = json.loads(capsys.readouterr().out)["checks"]
    ours = [check for check in found if check["name"].startswith("NRI")]
    assert len(ours) == 1, "the runtime's side goes by its own name"
    assert (ours[0]["state"] == "ok") == (code == Exit.OK)
    assert ours[0]["why"] in said
    assert code == (Exit.BAD if enabled and not view.connected and awaited else code)
    if enabled and not view.connected and phase is not Phase.NO_SOCKET:
        assert code == Exit.BAD
    monkeypatch.setenv("COLUMNS", "200")
    main(["status", "--verbose", "--socket", served.path])
    assert ours[0]["why"] in capsys.readouterr().out


def test_with_a_daemon_its_own_checks_count(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "koordlet.toml"
    config.write_text(f'[paths]\nstate_dir = "{tmp_path}/state"\n')
    arguments = ["doctor", "--config", str(config), "--socket", served.path]
    assert main([*arguments, "-o", "json"]) == Exit.OK
    names = [check["name"] for check in json.loads(capsys.readouterr().out)["checks"]]
    assert names[-2:] == ["daemon", "cpu.idle"]

    served.daemon.checks = (
        CheckView(name="x", state=CheckState.FAIL, why="broken", cost="much", remedy="this"),
    )
    assert main(arguments) == Exit.BAD
    printed = capsys.readouterr().out.splitlines()
    assert printed[:3] == [
        "fail     x: broken",
        "           costs: much",
        "           to do: this",
    ]
    assert printed[-1].endswith(" 1 fail")


def test_a_user_who_must_not_ask_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> None:
        raise NoAccessError("no permission")

    monkeypatch.setattr(doctor, "Client", refuse)
    *_, last = doctor.examine(Files(), Settings(str(tmp_path)), str(tmp_path / "no.sock"))  # type: ignore[arg-type]
    assert (last.name, last.why) == ("daemon", "no permission")
    assert "nothing is managed" not in last.cost


def test_features_that_need_the_same_stand_together() -> None:
    missing = [
        Capability("cpu.idle", True, "wrote 1"),
        Capability("memory.wmark_ratio", False, "ENOENT", "no reclaim"),
        Capability("memory.low", False, "ENOENT", "no protection"),
        Capability("memory.wmark_scale_factor", False, "ENOENT", "no reclaim"),
        Capability("cpu.cfs_burst_us", False, "ENOENT", "no burst"),
    ]
    view = DoctorView(checks=checks.of_capabilities(missing))
    assert doctor.lines(view, verbose=False) == [
        "limited  kernel: 3 features are missing",
        "           memory.wmark_ratio, memory.wmark_scale_factor: no reclaim",
        "           memory.low: no protection",
        "           to do: use a kernel or machine that has it, or do without",
        "limited  kernel: 1 feature is missing",
        "           cpu.cfs_burst_us: no burst",
        f"           to do: {checks.REMEDIES['cpu.cfs_burst_us']}",
        "ok       kernel; --verbose lists each",
        "",
        "1 ok, 4 limited, 0 fail",
    ]
    verbose = doctor.lines(view, verbose=True)
    assert "limited  kernel: cpu.cfs_burst_us: ENOENT" in verbose
    assert "ok       kernel: cpu.idle: wrote 1" in verbose


@pytest.mark.kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="trying kernel features needs root")
def test_without_a_daemon_the_kernel_is_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "koordlet.toml"
    config.write_text(f'[api]\nsocket = "{tmp_path}/nobody.sock"\n')
    assert main(["doctor", "--config", str(config), "-o", "json"]) in (Exit.OK, Exit.BAD)
    found = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert found["daemon"]["state"] == "limited"
    assert "does not exist" in found["daemon"]["why"]
    assert found["cgroups"]["state"] == "ok"
    assert found["kernel: cpu.cfs_quota_us"]["why"]
    assert all(check["state"] == "ok" or check["remedy"] for check in found.values())
