"""``koordlet top``: keys, one screen, what this machine adds to it, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.admin.model.usage import PodView, PressureView
from koordlet.cli.main import Exit
from koordlet.cli.show import processes as processes_module
from koordlet.cli.show.keys import FILTER_LENGTH, HELP, ORDERS, Screen, keys, press
from koordlet.cli.show.limits import Limit, Limits
from koordlet.cli.show.processes import Process, SystemProcesses
from koordlet.cli.show.screen import Frame, draw, worth_a_line
from koordlet.decision.names import shown
from koordlet.decision.record import Kind, PodKind, Record
from koordlet.decision.why import Why
from koordlet.drawing.spans import plain
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.proc.cgroup import cgroup_paths
from tests.admin.fake_daemon import FakeDaemon
from tests.admin.harness import Served

KOORDLET = [sys.executable, "-m", "koordlet"]
VIEW = FakeDaemon().top()()


def _pod(name: str, **fields: object) -> PodView:
    values: dict[str, object] = {
        "kind": PodKind.POD,
        "uid": name,
        "name": name,
        "namespace": "shop",
        "qos": "LS",
        "kube_qos": "Burstable",
        "cgroup": f"kubepods/{name}",
    }
    return PodView(**(values | fields))  # type: ignore[arg-type]


def _frame(*pods: PodView, **fields: object) -> Frame:
    view = msgspec.structs.replace(VIEW, pods=pods)
    return Frame(view, **({"decisions": VIEW.decisions} | fields))  # type: ignore[arg-type]


def _lines(frame: Frame, screen: Screen = Screen(), **size: int) -> list[str]:  # noqa: B008
    return list(map(plain, draw(frame, screen, **size)))


def _names(lines: list[str]) -> list[str]:
    start = next(i for i, line in enumerate(lines) if line.startswith("NAME "))
    return [line.split()[0].removeprefix("shop/") for line in lines[start + 1 :]]


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1bOB", ["up", "down"]),
        (b"\x1b[5~x\x1b[6~", ["page-up", "x", "page-down"]),
        (b"\x1b", ["escape"]),
        (b"\x1b\x1b", ["escape", "escape"]),
        (b"\x1b[1;5Cq", ["q"]),  # a sequence that means nothing here
        (b"\x1b[", []),
        ("aé日".encode(), ["a", "é", "日"]),
        (b"\xff", ["\ufffd"]),
    ],
)
def test_keys(sent: bytes, wanted: list[str]) -> None:
    assert list(keys(sent)) == wanted


@given(st.binary(max_size=200))
def test_any_bytes_are_keys(sent: bytes) -> None:
    screen = Screen()
    for key in keys(sent):
        screen = press(screen, key, 3)
    assert 0 <= screen.first <= 2
    assert len(screen.filter) <= FILTER_LENGTH
    assert _lines(_frame(_pod("a"), _pod("b"), _pod("c")), screen, height=24, width=80)


def _typed(text: str, pods: int = 9) -> Screen:
    screen = Screen()
    for key in keys(text.encode()):
        screen = press(screen, key, pods)
    return screen


def test_what_keys_do() -> None:
    assert _typed("q").is_over
    assert _typed("Q").is_over
    assert _typed(" ").is_paused
    assert not _typed("  ").is_paused
    assert _typed("h").is_help
    assert not _typed("?x").is_help
    assert _typed("hq").is_over
    assert [_typed("s" * i).order for i in range(len(ORDERS) + 1)] == [*ORDERS, ORDERS[0]]
    assert _typed("r").is_reversed
    assert _typed("jjk").first == 1
    assert _typed("\x1b[6~\x1b[6~").first == 8
    assert _typed("\x1b[F").first == 8
    assert _typed("\x1b[F\x1b[H").first == 0
    assert _typed("jj", pods=0).first == 0


def test_a_filter_is_typed() -> None:
    typing = _typed("/qx")
    assert (typing.filter, typing.is_typing, typing.is_over) == ("qx", True, False)
    assert _typed("/qx\x7f").filter == "q"
    assert _typed("/qx\r").filter == "qx"
    assert not _typed("/qx\r").is_typing
    assert _typed("/qx\rq").is_over
    assert _typed("/qx\x1b") == Screen()
    assert _typed("/qx\r\x1b") == Screen()


PODS = (
    _pod("web", cpu_cores=1.0, memory_bytes=10, pressure=PressureView(cpu_some=1.0)),
    _pod("db", cpu_cores=0.5, memory_bytes=30, pressure=PressureView(io_some=9.0)),
    _pod("batch", qos="BE", cpu_cores=2.0, throttled_ratio=0.9, throttled_why=""),
    _pod("idle"),
)


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("cpu", ["batch", "web", "db", "idle"]),
        ("memory", ["db", "web", "batch", "idle"]),
        ("throttled", ["batch", "db", "idle", "web"]),
        ("cpu pressure", ["web", "batch", "db", "idle"]),
        ("io pressure", ["db", "batch", "idle", "web"]),
        ("name", ["batch", "db", "idle", "web"]),
    ],
)
def test_order(order: str, wanted: list[str]) -> None:
    assert _names(_lines(_frame(*PODS), Screen(order=order))) == wanted
    assert _names(_lines(_frame(*PODS), Screen(order=order, is_reversed=True))) == wanted[::-1]


def test_filter_by_name_class_and_cgroup() -> None:
    for words, wanted in (
        ("WEB", ["web"]),
        ("be", ["batch"]),
        ("pods/d", ["db"]),
        ("b", ["batch", "web", "db", "idle"]),
    ):
        assert _names(_lines(_frame(*PODS), Screen(filter=words))) == wanted
    lines = _lines(_frame(*PODS), Screen(filter="nothing\x1b[2J"))
    assert "No pod and no application matches" in lines[-1]
    assert "\x1b" not in "".join(lines)


def test_one_line_a_pod_with_limit_and_pressure() -> None:
    pod = _pod(
        "web",
        cpu_cores=0.91,
        memory_bytes=96 << 20,
        throttled_ratio=0.125,
        cpu_wait_ms_per_s=412.4,
        pressure=PressureView(cpu_some=12.5, memory_some=0.0, io_some=1.0),
    )
    frame = _frame(pod, limits={pod.cgroup: Limit(1.0, 128 << 20)})
    header, line = _lines(frame)[-2:]
    assert " ".join(line.split()) == (
        "shop/web LS 0.91 1.00 12.5% 412ms/s 12.5% 0.0% 1.0% 96.0 MiB 128.0 MiB pod kubepods/web"
    )
    assert header.index("CGROUP") == line.index("kubepods/web")
    # What matters stands in the first 80 columns.
    assert header.index("MEMORY") < 72
    assert _lines(_frame(pod))[-1].split()[3] == "-"


def test_gpus_have_columns_where_somebody_uses_one() -> None:
    assert "GPU" not in _lines(_frame(_pod("web")))[-2]
    users = _frame(_pod("web", gpu_core_percent=35.5, gpu_memory_bytes=11 << 30), _pod("batch"))
    header, *rows = _lines(users, Screen(order="name"))[-3:]
    assert " ".join(header.split()).endswith("MEMORY LIMIT GPU GPU MEM KIND CGROUP")
    only_core = _frame(_pod("web", gpu_core_percent=35.5))  # the driver does not know its memory
    assert "GPU MEM" in _lines(only_core)[-2]
    shown_rows = [" ".join(row.split()).split(" pod ")[0].split()[-3:] for row in rows]
    assert shown_rows == [["-", "-", "-"], ["35.5%", "11.0", "GiB"]]


def test_caches_have_columns_where_somebody_counts_them() -> None:
    """A pod that is not counted has a dash, and is the last by either order."""
    plain_header = _lines(_frame(_pod("web")))[-2].split()
    assert not {"CPI", "LLC"} & set(plain_header)
    counted = _frame(
        _pod("web", cycles_per_instruction=1.754, llc_bytes=6 << 20),
        _pod("batch", cpu_cores=3.0),
        _pod("db", cycles_per_instruction=0.4),
    )
    header, *rows = _lines(counted, Screen(order="cpi"))[-4:]
    assert " ".join(header.split()) == (
        "NAME QOS CPU LIMIT THROTTLED WAIT CPI PSI CPU MEM IO MEMORY LIMIT LLC KIND CGROUP"
    )
    assert [row.split()[6] for row in rows] == ["1.75", "0.40", "-"]
    assert _names(_lines(counted, Screen(order="cpi"))) == ["web", "db", "batch"]
    assert _names(_lines(counted, Screen(order="llc")))[0] == "web"
    assert rows[0].split(" pod ")[0].split()[-2:] == ["6.0", "MiB"]
    only_cpi = _lines(_frame(_pod("db", cycles_per_instruction=0.4)))[-2].split()
    assert "CPI" in only_cpi and "LLC" not in only_cpi


def test_styles_say_what_is_bad() -> None:
    pressed = PressureView(cpu_some=30.0)
    frame = _frame(
        _pod("web", throttled_ratio=0.6, pressure=pressed),
        _pod("batch", qos="BE", throttled_ratio=0.9, pressure=pressed),
    )
    *_, batch, web = draw(frame, Screen(order="name"))
    styles = {span.text.strip(): span.style for span in web}
    assert (styles["60.0%"], styles["30.0%"], styles["LS"]) == ("bad", "bad", "LS")
    assert "bad" not in {span.style for span in batch}
    (refused,) = [line for line in draw(frame, Screen()) if "(refused)" in plain(line)]
    assert refused[-1].style == "bad"


def test_many_pods_scroll() -> None:
    pods = [_pod(f"p{i:03}", cpu_cores=100.0 - i) for i in range(100)]
    top = _lines(_frame(*pods), height=30)
    assert len(top) == 30
    assert _names(top)[0] == "p000"
    assert "Last decisions:" in top
    count = len(_names(top)) - 1
    assert top[-1] == f"... {100 - count} below; scroll, or filter with /"
    later = _lines(_frame(*pods), Screen(first=10), height=30)
    assert _names(later)[0] == "p010"
    assert later[-1].startswith(f"... 10 above, {90 - count} below")
    end = _lines(_frame(*pods), Screen(first=99), height=30)
    assert _names(end)[0] == "p099"
    assert end[-1].startswith("... 99 above;")


def test_a_long_name_leaves_room_for_the_figures() -> None:
    line = _lines(_frame(_pod("x" * 253)), width=80)[-1]
    assert line.startswith("shop/" + "x" * 20 + "…")


def test_the_biggest_processes_of_the_system() -> None:
    found = [Process(7, "cron\x1b[2J", 0.5, 1 << 20, "system.slice/cron.service")] * 5
    lines = _lines(_frame(processes=found))
    at = lines.index("System (0.25 cores), its biggest processes:")
    assert " ".join(lines[at + 2].split()) == (
        "0.50 1.0 MiB 7 cron\\x1b[2J system.slice/cron.service"
    )
    assert sum("cron" in line for line in lines) == 5
    assert sum("cron" in line for line in _lines(_frame(processes=found), height=30)) == 3
    assert sum("cron" in line for line in _lines(_frame(processes=found), height=24)) == 1


def test_state_of_the_screen_and_help() -> None:
    screen = Screen(order="memory", filter="we", is_paused=True)
    first = _lines(_frame(*PODS), screen)[0]
    assert "paused" in first
    assert "by memory" in first
    assert "filter: we" in first
    text = "\n".join(_lines(_frame(*PODS), Screen(is_help=True)))
    assert all(meaning in text for _, meaning in HELP)


def _decision(at: float, text: str = "", resource: str = "") -> Record:
    why = Why("rule", text)
    kind = Kind.WRITE if resource else Kind.NOTE
    return Record(at, kind, "o", why, resource=resource, result="written" if resource else "")


def test_notes_do_not_push_decisions_away() -> None:
    decided = _decision(1.0, resource="cpu.idle")
    notes = [_decision(2.0 + i, f"note {i}") for i in range(100)]
    seen = worth_a_line((), [decided])
    for note in notes:
        seen = worth_a_line(seen, [note])
    assert decided in seen
    assert len(seen) == 32
    assert seen[0] == notes[-1]
    many = [_decision(200.0 + i, resource="cpu.idle") for i in range(50)]
    assert set(worth_a_line(seen, many)) == set(many[-32:])


def test_an_empty_note_is_no_line_and_a_repeated_one_is_one() -> None:
    again = [_decision(1.0 + i, "the same") for i in range(5)]
    assert worth_a_line((), [*again, _decision(9.0)]) == (again[-1],)


BUSY = "import time\nwhile True:\n    sum(range(10000))\n"


def test_a_process_of_no_pod_is_the_systems() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY]) as child:
        try:
            path = shown(max(cgroup_paths(LinuxHost(), child.pid), key=len))
            watched = SystemProcesses()
            assert watched.biggest((), 1000) == ()
            found: list[Process] = []
            while not found:  # until it has run for a clock tick
                time.sleep(0.05)
                found = [each for each in watched.biggest((), 1000) if each.pid == child.pid]
            assert found[0].cores > 0
            assert found[0].rss_bytes > 0
            assert found[0].name.startswith("python")
            assert found[0].cgroup == (path or "/")
            assert len(watched.biggest((), 0)) == 0
        finally:
            child.kill()


def test_a_process_of_a_pod_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes_module, "_cpu_seconds", lambda: {os.getpid(): time.monotonic()})
    monkeypatch.setattr(
        processes_module, "cgroup_paths", lambda host, pid: {"kubepods/podx/c1", ""}
    )
    for owned, count in (
        ((), 1),
        (("kubepods/podx",), 0),
        (("kubepods/podx/c1",), 0),
        (("kubepods/pod",), 1),  # no part of a name
    ):
        watched = SystemProcesses()
        watched.biggest(owned)
        time.sleep(0.001)
        assert len(watched.biggest(owned)) == count, owned


def test_a_process_that_ends_meanwhile_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    monkeypatch.setattr(processes_module, "_cpu_seconds", lambda: {child.pid: time.monotonic()})
    watched = SystemProcesses()
    watched.biggest(())
    assert watched.biggest(()) == ()


def test_limits_are_those_of_the_kernel(tmp_path: Path) -> None:
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    mount = f"30 1 0:26 / {root} rw,nosuid - cgroup2 cgroup2 rw\n"
    (proc / "self" / "mountinfo").write_text(mount)
    for name, quota, memory in (("web", "150000 100000", "1048576"), ("free", "max 100000", "max")):
        (root / name).mkdir(parents=True)
        (root / name / "cpu.max").write_text(f"{quota}\n")
        (root / name / "memory.max").write_text(f"{memory}\n")
    (root / "cgroup.controllers").write_text("cpu cpuset memory\n")
    (root / "web" / "inner").mkdir()
    (root / "free" / "listed").mkdir()
    for name, cpus in (("listed", "0"), ("", f"0-{os.cpu_count()}")):
        (root / "free" / name / "cpuset.cpus.effective").write_text(f"{cpus}\n")
    limits = Limits(str(root), str(proc))
    assert limits.of(["web", "web/inner", "free", "free/listed", "gone"]) == {
        "web": Limit(1.5, 1 << 20),
        "web/inner": Limit(1.5, None),
        "free": Limit(),
        "free/listed": Limit(1.0 if (os.cpu_count() or 0) > 1 else None, None),
        "gone": Limit(),
    }
    assert Limits(str(root), str(tmp_path)).of(["web"]) == {"web": Limit()}


def test_top_without_a_terminal_prints_one_frame(served: Served) -> None:
    done = subprocess.run(
        [*KOORDLET, "top", "--socket", served.path],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.count("CPU     [") == 1
    assert "\x1b" not in done.stdout


def _on_a_terminal(
    served: Served, *typed: bytes, ignored: bool = False, stdin: int | None = None
) -> tuple[int, bytes]:
    """Exit code, and what was drawn after the last keys. The child gets the terminal as its own,
    so that Ctrl-C makes the signal."""
    master, slave = os.openpty()
    top = [*KOORDLET, "top", "--interval", "0.2", "--socket", served.path]
    ignore = "signal.signal(signal.SIGINT, signal.SIG_IGN);" if ignored else ""
    code = f"import os, signal, sys; {ignore}os.execv(sys.argv[1], sys.argv[1:])"
    command = ["setsid", "--ctty", sys.executable, "-c", code, *top]
    if stdin is not None:  # --ctty takes the terminal from stdin
        command = ["setsid", "--ctty", "sh", "-c", 'exec "$@" < /dev/null', "sh", *command[2:]]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=subprocess.PIPE) as child:
        os.close(slave)
        try:
            for each in typed:
                seen = b""
                while seen.count(b"Memory  [") < 2:
                    seen += os.read(master, 65536)
                os.write(master, each)
            last = b""
            # Keep reading, or the last screen update would wait for us.
            try:
                while data := os.read(master, 65536):
                    last += data
            except OSError:
                pass
            assert child.stderr is not None
            assert child.stderr.read() == b""
            child.wait(60)
        finally:
            child.kill()
            os.close(master)
    return child.returncode, last


@pytest.mark.parametrize("ignored", [False, True], ids=["default", "ignored"])
@pytest.mark.parametrize(("key", "code"), [(b"\x03", Exit.INTERRUPTED), (b"q", Exit.OK)])
def test_top_on_a_terminal_redraws_until_a_key(
    served: Served, key: bytes, code: Exit, ignored: bool
) -> None:
    """A shell starts a background job with SIGINT ignored."""
    assert _on_a_terminal(served, key, ignored=ignored)[0] == code


def test_q_ends_it_where_stdin_is_not_the_terminal(served: Served) -> None:
    """As in a script's background job, which gets /dev/null."""
    code, _ = _on_a_terminal(served, b"q", ignored=True, stdin=subprocess.DEVNULL)
    assert code == Exit.OK


def test_keys_change_the_screen(served: Served) -> None:
    code, last = _on_a_terminal(served, b"/batch\r", b"sq")
    assert code == Exit.OK
    assert b"by memory" in last or b"filter: batch" in last


def test_a_daemon_that_goes_away_ends_it(served: Served) -> None:
    master, slave = os.openpty()
    command = [*KOORDLET, "top", "--interval", "0.2", "--socket", served.path]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=subprocess.PIPE) as child:
        os.close(slave)
        seen = b""
        while b"Memory  [" not in seen:
            seen += os.read(master, 65536)
        served.call(served.server.stop())
        try:
            while os.read(master, 65536):
                pass
        except OSError:
            pass
        assert child.stderr is not None
        assert b"stopped answering" in child.stderr.read()
        assert child.wait(60) == Exit.NOT_REACHABLE
    os.close(master)


def test_the_daemon_never_imports_psutil() -> None:
    code = (
        "import sys\nimport koordlet.daemon.lifecycle, koordlet.cli.process.run\n"
        "sys.exit('psutil' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
