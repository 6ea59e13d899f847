"""Exit codes, help, completion, and what happens where the output goes away."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from koordlet import __version__
from koordlet.admin.client import Client
from koordlet.admin.model.configuration import ReloadView
from koordlet.admin.model.events import EventKind, EventView
from koordlet.cli.arguments import GROUPS, Command
from koordlet.cli.commands import COMMANDS
from koordlet.cli.fish import quoted
from koordlet.cli.main import Exit, build_parser, main
from koordlet.cli.show.status import LINES, lines
from koordlet.collectors import CATALOGUE
from koordlet.decision.snapshot import Fault
from koordlet.decision.why import Why
from koordlet.views.standings import NAMES
from tests.admin.harness import Served

KOORDLET = [sys.executable, "-m", "koordlet"]


def _leaves(commands: tuple[Command, ...] = COMMANDS, prefix: str = "") -> list[str]:
    return [
        leaf
        for command in commands
        for leaf in (
            _leaves(command.children, f"{prefix}{command.name} ")
            if command.children
            else [prefix + command.name]
        )
    ]


def _run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [*KOORDLET, *arguments], capture_output=True, text=True, timeout=60, **options
    )


@pytest.mark.parametrize("command", _leaves())
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*command.split(), "--help"])
    assert end.value.code == 0
    assert f"usage: koordlet {command}" in capsys.readouterr().out


def test_every_command_has_an_example_and_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    def check(commands: tuple[Command, ...], prefix: str) -> None:
        for command in commands:
            if command.children:
                check(command.children, f"{prefix}{command.name} ")
                continue
            for example in command.examples:
                typed, *_ = example.replace(" > ", "  # ").replace(" | ", "  # ").split("  # ")
                build_parser().parse_args(shlex.split(typed)[1:])
                assert typed.startswith(f"koordlet {prefix}{command.name}")
            assert command.examples, command.name

    check(COMMANDS, "")
    assert {command.group for command in COMMANDS} == set(GROUPS)
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert all(f"\n {group}:\n" in told for group in GROUPS)
    with pytest.raises(SystemExit):
        main(["why", "--help"])
    assert "  koordlet why --at 03:12\n" in capsys.readouterr().out


HEAVY = {
    *("grpc", "asyncio", "ssl", "structlog", "rich", "yaml", "psutil", "koordlet.kernel.host"),
    *("koordlet.actuator", "koordlet.collectors", "koordlet.config.load", "koordlet.engine"),
    *("koordlet.hooks", "koordlet.qos", "koordlet.tsdb", "koordlet.cli.restore"),
    *("koordlet.kernel.bpf", "koordlet.kernel.net", "shutil"),
}
READING = {
    "status": [],
    "why": [],
    "pods": [],
    "blame": ["--once"],
    "top": ["--once"],
    "explain": ["node"],
    "events": [],
    "query": ["pod_cpu_usage"],
    "hooks": [],
    "strategies": [],
    "devices": [],
    "nri status": [],
    "config show": [],
}
"""Commands that ask a daemon and show what it says, with the arguments they need."""


@pytest.mark.parametrize("command", READING)
def test_what_only_asks_loads_no_part_of_the_daemon(command: str, served: Served) -> None:
    """Nor grpc and asyncio, which take longer than everything else. ``top`` reads the limits of
    cgroups and the processes of the system itself."""
    heavy = HEAVY - ({"psutil", "koordlet.kernel.host"} if command == "top" else set())
    code = (
        "import sys\nfrom koordlet.cli import main\ncode = main(sys.argv[1:])\n"
        f"print(code, *sorted({heavy!r} & set(sys.modules)))"
    )
    asked = [*command.split(), *READING[command], "--socket", served.path]
    done = subprocess.run(
        [sys.executable, "-c", code, *asked], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "0"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["stauts"], 'did you mean "koordlet status"?'),
        (["config", "chek", "x"], 'did you mean "koordlet config check"?'),
        (["xyzzy"], "`koordlet --help` lists them"),
    ],
)
def test_a_mistyped_command(
    typed: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed) == Exit.USAGE
    assert meant in capsys.readouterr().err


def test_kinds_of_series_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "--list", "pod_psi"]) == Exit.OK
    header, line, *_ = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["KIND", "UNIT", "LABELS"]
    assert line.startswith("pod_psi ") and "psi_resource" in line
    assert main(["query", "--list", "nonsense"]) == Exit.BAD
    assert main(["query"]) == Exit.USAGE


def test_names_for_completion(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pods", "--names", "--socket", served.path]) == Exit.OK
    assert capsys.readouterr().out == "shop/web-0\nbatch\n"


def test_bash_completes_names(served: Served) -> None:
    script = _run("completion", "bash").stdout
    asked = (
        f'koordlet() {{ {shlex.quote(sys.executable)} -m koordlet "$@"; }}\n{script}\n'
        'COMP_WORDS=(koordlet why sho); COMP_CWORD=2; COMP_LINE="koordlet why sho"; '
        '_shtab_koordlet; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", asked],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"KOORDLET_SOCKET": served.path},
    )
    assert "shop/web-0" in done.stdout.split()


def test_status_is_short_and_says_first_what_hurts(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--socket", served.path]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 12
    assert [line.split()[0] for line in lines[1:4]] == ["evictions", "waiting", "armed"]
    assert "next: koordlet blame shop/web-0" in lines[2]


def test_a_short_status_has_room_for_all_that_hurts(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three evictions that are told at length leave who waits, and what is armed."""
    monkeypatch.setenv("COLUMNS", "80")
    with Client(served.path) as client:
        status = client.status()
    long = msgspec.structs.replace(status.ended[0], why=Why("r", "demo/be-1 was evicted " * 20))
    found = lines(msgspec.structs.replace(status, ended=(long,) * 3), verbose=False)
    assert len(found) <= LINES and all(len(line) <= 80 for line in found)
    told = " ".join(found)
    for words in ("and 1 more: koordlet events", "next: koordlet blame shop/web-0", "armed  "):
        assert words in told


def test_events_of_a_kind(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["events", "-o", "json", "--socket", served.path]
    assert main([*at, "--kind", "lifecycle"]) == Exit.OK
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()] == ["ready"]
    assert main([*at, "--subject", "besteffort"]) == Exit.OK
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["sequence"] == 2
    assert main([*at, "--kind", "conflict"]) == Exit.OK
    told = capsys.readouterr()
    assert not told.out and "no such event in this run; --since 24h" in told.err
    assert main([*at, "--kind", "lifecylce"]) == Exit.USAGE
    assert 'did you mean "lifecycle"?' in capsys.readouterr().err


def test_labels_may_stand_behind_options(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["query", "pod_cpu_usage", "--window", "60s", "pod_uid=1", "--socket", served.path]
    assert main(asked) == Exit.OK
    assert main([*asked, "no-pair"]) == Exit.USAGE
    assert "no-pair" in capsys.readouterr().err
    for wrong in ([*asked, "--windo-w=3"], ["status", "web"]):
        with pytest.raises(SystemExit, match="2"):
            main(wrong)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom koordlet.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'grpc', 'rich', 'yaml', 'msgspec', 'structlog', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["status", "-o", "xml"],
        ["config"],
        ["query", "pod_cpu_usage", "no-pair"],
        ["query", "pod_cpu_usage", "--window", "soon"],
        ["events", "--since", "yesterday"],
        ["explain", "node", "--limit", "-3"],
        ["top", "--interval", "nan"],
        ["predict", "--window", "0s"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    done = _run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(("usage:", "koordlet:"))


def test_unreachable_daemon_is_3_with_advice(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "left.sock"))
    left.close()
    for name, text in (("no.sock", "does not exist"), ("left.sock", "nobody listens")):
        path = str(tmp_path / name)
        done = _run("status", "--socket", path)
        assert done.returncode == 3
        assert text in done.stderr
        assert path in done.stderr
        assert "systemctl status koordlet" in done.stderr
        assert "What it has left" not in done.stderr  # whose state that would be is not known
        assert done.stdout == ""
    config = tmp_path / "koordlet.toml"
    config.write_text(f'[api]\nsocket = "{tmp_path}/no.sock"\n')
    done = _run("status", "--config", str(config))
    assert f"What it has left: `koordlet why --config {config}`." in done.stderr


def test_what_the_daemon_refuses(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--socket", served.path]
    assert main(["explain", "nothing", *at]) == Exit.BAD
    assert main(["query", "pod_cpu", *at]) == Exit.USAGE
    served.daemon.crash = RuntimeError("a defect")
    assert main(["status", *at]) == Exit.BAD
    # The daemon shares this process here, and its log the stderr.
    told = capsys.readouterr().err.splitlines()
    assert [line for line in told if line.startswith("koordlet: ")] == [
        "koordlet: 'nothing' is no pod, application, cgroup or owner",
        "koordlet: unknown kind 'pod_cpu', did you mean 'pod_cpu_usage'?",
        "koordlet: the daemon failed: RuntimeError: a defect (INTERNAL)",
    ]


def test_a_refused_reload_is_1(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    served.daemon.reload_answer = ReloadView(
        ok=False, errors=(Fault(subject="koordlet.toml:3", path="api.sokcet", message="unknown"),)
    )
    assert main(["config", "reload", "--socket", served.path]) == Exit.BAD
    assert "  koordlet.toml:3: api.sokcet: unknown" in capsys.readouterr().out.splitlines()


def test_events_since(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["events", "-o", "json", "--socket", served.path, "--since"]
    assert main([*arguments, "2027-01-15T08:00:30+00:00"]) == Exit.OK
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["sequence"] == 2


def test_follow_starts_now_unless_told_otherwise(served: Served) -> None:
    """Now is after the past events of the fake daemon, which are of 2027."""
    new = EventView(sequence=3, time=0.0, kind=EventKind.CONFIG, subject="", text="reloaded")
    later = (
        "import sys, time; time.time = lambda: 1.9e9\n"
        "from koordlet.cli.main import main; main(sys.argv[1:])"
    )
    for since, seen in (([], ["reloaded"]), (["--since", "2020-01-01"], ["ready", "cpuset.cpus"])):
        served.call(served.daemon.live_events.put(new))
        arguments = ["events", "--follow", *since, "--socket", served.path]
        command = [sys.executable, "-uc", later, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            try:
                assert child.stdout is not None
                for words in seen:
                    assert words in child.stdout.readline()
            finally:
                child.kill()


def test_follow_ends_quietly_on_ctrl_c(served: Served) -> None:
    command = [*KOORDLET, "events", "--follow", "--since", "2020-01-01", "--socket", served.path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline()
        child.send_signal(signal.SIGINT)
        _, stderr = child.communicate(timeout=60)
    assert child.returncode == Exit.INTERRUPTED
    assert stderr == b""


def test_a_reader_that_goes_away_is_no_error(served: Served) -> None:
    served.daemon.pod_list = served.daemon.pod_list * 5000
    command = [*KOORDLET, "pods", "--socket", served.path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith(b"NAME")
        child.stdout.close()
        assert child.stderr is not None
        assert child.stderr.read() == b""
    assert child.returncode == Exit.BROKEN_PIPE


@pytest.mark.parametrize("shell", ["bash", "fish", "tcsh", "zsh"])
def test_completion_knows_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == Exit.OK
    script = capsys.readouterr().out
    for command in _leaves():
        assert command.split()[-1] in script


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("conf",), {"config"}),
        (("strategies", ""), set(NAMES)),
        (("strategies", "memory-"), {"memory-evict", "memory-qos"}),
        (("query", "pod_cpu_"), {kind for kind in CATALOGUE if kind.startswith("pod_cpu_")}),
    ],
)
def test_bash_completion_completes(typed: tuple[str, ...], offered: set[str]) -> None:
    script = _run("completion", "bash").stdout
    words = shlex.join(("koordlet", *typed))
    asked = (
        f"{script}\nCOMP_WORDS=({words}); COMP_CWORD={len(typed)}; COMP_LINE={shlex.quote(words)};"
        '_shtab_koordlet; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", asked], capture_output=True, text=True, timeout=60, check=False
    )
    assert {word for word in done.stdout.split() if not word.startswith("-")} == offered


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", {command.name for command in COMMANDS}),
        ("conf", {"config"}),
        ("config ", {"check", "init", "reload", "sample", "schema", "show"}),
        ("config init --preset ", {"database", "gpu", "kubernetes", "web+batch"}),
        ("strategies memory-", {"memory-evict", "memory-qos"}),
        ("status -o ", {"json", "table", "yaml"}),
        ("query pod_cpu_", {kind for kind in CATALOGUE if kind.startswith("pod_cpu_")}),
        ("events --f", {"--follow"}),
        ("events --since ", set()),
        ("config check --", {"--file-only", "--help", "--output"}),
        ("config check x.t", {"x.toml"}),
    ],
)
def test_fish_completion_completes(typed: str, offered: set[str], tmp_path: Path) -> None:
    (tmp_path / "x.toml").touch()
    script = tmp_path / "koordlet.fish"
    script.write_text(_run("completion", "fish").stdout)
    fish = ["fish", "--no-config"]
    checked = subprocess.run([*fish, "-n", str(script)], capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")
    asked = f"source koordlet.fish; complete -C {shlex.quote(f'koordlet {typed}')}"
    done = subprocess.run(
        [*fish, "-c", asked],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=True,
        env=os.environ | {"HOME": str(tmp_path)},
    )
    words = {line.partition("\t")[0] for line in done.stdout.splitlines()}
    assert {word for word in words if not word.endswith(".fish")} == offered
    assert done.stderr == ""


def test_fish_quotes() -> None:
    assert quoted(r"a'b\c") == r"'a\'b\\c'"


def test_only_what_completes_is_limited_to_the_words() -> None:
    """A daemon of another version may have strategies that this command does not know."""
    assert build_parser().parse_args(["strategies", "of-tomorrow"]).name == "of-tomorrow"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"koordlet {__version__}\n"


def test_an_output_that_cannot_be_written_is_1_without_a_traceback(served: Served) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*KOORDLET, "pods", "--socket", served.path],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == Exit.BAD
    assert done.stderr == "koordlet: [Errno 28] No space left on device\n"


def test_prose_fits_the_terminal(served: Served) -> None:
    environment = os.environ | {"COLUMNS": "80"}
    done = _run("status", "--verbose", "--socket", served.path, env=environment)
    assert max(map(len, done.stdout.splitlines())) <= 80
    in_one = " ".join(done.stdout.split())
    assert "CPU list '9-1': range '9-1' runs backwards" in in_one


def test_functions_of_the_table_exist() -> None:
    import importlib

    def check(commands: tuple[Command, ...]) -> None:
        for command in commands:
            check(command.children)
            module, _, name = command.function.partition(":")
            if module:
                assert callable(getattr(importlib.import_module(module), name))

    check(COMMANDS)
    assert build_parser().prog == "koordlet"
