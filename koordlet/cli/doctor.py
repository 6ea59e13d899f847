"""``koordlet doctor``: what works on this machine, what does not, what it costs, what to do."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable

from koordlet.admin import checks
from koordlet.admin.client import Client, NoAccessError, NotReachableError
from koordlet.admin.model.doctor import CheckState, CheckView, DoctorView
from koordlet.admin.runtime_checks import runtime_checks, sharers
from koordlet.cli import output
from koordlet.cli.arguments import DEFAULT_PROXY_SOCKET
from koordlet.cli.connect import socket_of
from koordlet.cli.main import Exit
from koordlet.cli.settings import Settings, find
from koordlet.kernel.cgroup.layout import HUGE_PAGES_OPTION, detect
from koordlet.kernel.host import Host
from koordlet.kernel.linux import LinuxHost
from koordlet.views import plugin_checks

UNIT = "koordlet.service"
UNIT_DIRS = ("/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
DUMP_TIMEOUT_S = 10.0
WANTS = f"/etc/systemd/system/multi-user.target.wants/{UNIT}"


def main(args: argparse.Namespace) -> int:
    output.log_to_stderr()
    settings = find(args.config)
    answer = DoctorView(
        checks=tuple(examine(LinuxHost(), settings, socket_of(args, settings.config)))
    )
    output.emit(answer, args.output, lambda: lines(answer, verbose=args.verbose))
    failed = any(check.state is CheckState.FAIL for check in answer.checks)
    return Exit.BAD if failed else Exit.OK


def examine(host: Host, settings: Settings, socket: str) -> Iterable[CheckView]:
    """The daemon knows its own capabilities, which its unit may have narrowed; where none
    answers the kernel is tried from here."""
    yield configuration(settings)
    yield state_directory(settings.config.paths.state_dir)
    yield systemd_unit(host)
    connected, daemon, runs = ask_daemon(socket)
    yield from runtime_checks(
        host,
        DEFAULT_PROXY_SOCKET,
        containerd_dump,
        settings.config.paths.proc_root,
        connected=connected,
    )
    yield from sharers(host, settings.config.paths.proc_root)
    yield from daemon
    if not runs:
        yield from machine(host, settings)


def ask_daemon(path: str) -> tuple[bool | None, tuple[CheckView, ...], bool]:
    """(whether NRI is connected, None where nobody says so; what the daemon says of itself;
    whether there may be one)."""
    try:
        with Client(path) as client:
            found, connected = client.doctor().checks, client.nri().connected
    except NoAccessError as error:
        check = CheckView(
            name="daemon",
            state=CheckState.LIMITED,
            why=str(error),
            cost="what the daemon knows is not shown here",
            remedy="run doctor as root",
        )
        return None, (check,), True
    except NotReachableError as error:
        check = CheckView(
            name="daemon",
            state=CheckState.LIMITED,
            why=str(error),
            cost="nothing is managed now; what an earlier run set stays in force",
            remedy=f"`systemctl start {UNIT}`, or `koordlet run` by hand",
        )
        return None, (check,), False
    answers = CheckView(name="daemon", state=CheckState.OK, why=f"answers on {path}")
    return connected, (answers, *found), True


def containerd_dump(file: str) -> str | None:
    """``Dump`` by the containerd in root's PATH: only it knows its defaults and its rules for
    merging files."""
    program = shutil.which("containerd")
    if program is None:
        return None
    command = [program, "--config", file, "config", "dump"]
    try:
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=DUMP_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout


def configuration(settings: Settings) -> CheckView:
    name = f"configuration: {settings.file}"
    if settings.error:
        return CheckView(
            name=name,
            state=CheckState.FAIL,
            why=settings.error,
            cost="koordlet does not start with it",
            remedy=f"mend it, then `koordlet config check {settings.file}`",
        )
    if settings.is_default:
        return CheckView(
            name=name,
            state=CheckState.LIMITED,
            why="there is no such file, defaults are in force",
            cost="no application of this host is known",
            remedy=f"`koordlet config sample > {settings.file}`, then edit it",
        )
    return CheckView(name=name, state=CheckState.OK, why="valid")


def state_directory(path: str) -> CheckView:
    name = f"state directory: {path}"
    cost = "nothing is written to the host, since originals cannot be recorded"
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return CheckView(name=name, state=CheckState.OK, why="not there yet; made at the start")
    except OSError as error:
        why = f"{error.strerror} ({error.filename})"
        return CheckView(
            name=name, state=CheckState.LIMITED, why=why, cost=cost, remedy="run doctor as root"
        )
    if found.st_mode & 0o022:
        return CheckView(
            name=name,
            state=CheckState.FAIL,
            why=f"others may write to it (mode {found.st_mode & 0o7777:04o})",
            cost="anybody could make `koordlet restore` write what he likes, as root",
            remedy=f"chmod go-w {path}",
        )
    return CheckView(name=name, state=CheckState.OK, why=f"mode {found.st_mode & 0o7777:04o}")


def systemd_unit(host: Host) -> CheckView:
    name = f"systemd: {UNIT}"
    cost = "nobody starts koordlet at boot, or again after a crash"
    if not host.exists("/run/systemd/system"):
        return CheckView(
            name=name,
            state=CheckState.LIMITED,
            why="this machine was not booted by systemd",
            cost=cost,
            remedy="have your own supervisor run `koordlet run`",
        )
    if not any(host.exists(f"{directory}/{UNIT}") for directory in UNIT_DIRS):
        return CheckView(
            name=name,
            state=CheckState.LIMITED,
            why="not installed",
            cost=cost,
            remedy="`make install-service` in the source tree",
        )
    if not host.exists(WANTS):
        return CheckView(
            name=name,
            state=CheckState.LIMITED,
            why="installed, but not enabled",
            cost="nobody starts koordlet at boot",
            remedy=f"`systemctl enable --now {UNIT}`",
        )
    return CheckView(name=name, state=CheckState.OK, why="installed and enabled")


def machine(host: Host, settings: Settings) -> Iterable[CheckView]:
    paths = settings.config.paths
    try:
        layout = detect(host, cgroup_root=paths.cgroup_root, proc_root=paths.proc_root)
    except OSError as error:
        yield CheckView(
            name="cgroups",
            state=CheckState.FAIL,
            why=f"{error.strerror} ({error.filename})",
            cost="koordlet has nothing to measure and nothing to set",
            remedy=f"mount cgroup2 on {paths.cgroup_root}",
        )
        return
    huge = f"; huge pages are memory of their cgroup ({HUGE_PAGES_OPTION})"
    why = f"{layout.kind}: {', '.join(layout.roots)}{huge if layout.counts_huge_pages else ''}"
    yield CheckView(name="cgroups", state=CheckState.OK, why=why)
    yield from applications(host, settings)
    yield from plugin_checks.missing(settings.config.plugins)
    yield from plugin_checks.offered(settings.config.plugins)
    yield from checks.other_managers(host, paths.proc_root)
    if os.geteuid() != 0:
        yield CheckView(
            name="kernel",
            state=CheckState.LIMITED,
            why="trying its features takes root",
            cost="what this kernel can do is not known here",
            remedy="run doctor as root",
        )
        return
    from koordlet.kernel.devices.outcomes import try_devices
    from koordlet.kernel.probe.probe import probe

    found = asyncio.run(probe(host, layout, proc_root=paths.proc_root, sys_root=paths.sys_root))
    yield from checks.of_capabilities(found)
    yield from checks.of_capabilities(try_devices(host, paths.proc_root, paths.sys_root))


def applications(host: Host, settings: Settings) -> Iterable[CheckView]:
    """Those of the configuration that are not there."""
    from koordlet.config.load import load
    from koordlet.engine.absent import COST, REMEDY, warnings

    if settings.error or settings.is_default:
        return
    for each in warnings(host, load(settings.file)):
        yield CheckView(
            name="applications", state=CheckState.LIMITED, why=str(each), cost=COST, remedy=REMEDY
        )


def lines(answer: DoctorView, *, verbose: bool) -> list[str]:
    """What is not well first, what is well last. Unless ``verbose``, kernel features that one
    remedy would bring stand together, and what is well is one line."""
    found: list[str] = []
    for state in CheckState.FAIL, CheckState.LIMITED:
        kernel: dict[str, list[CheckView]] = {}
        for check in answer.checks:
            if check.state is not state:
                continue
            if check.name.startswith(checks.KERNEL) and not verbose:
                kernel.setdefault(check.remedy, []).append(check)
            else:
                found += _one(check)
        for remedy, together in kernel.items():
            found += _features(state, together, remedy)
    good = [check for check in answer.checks if check.state is CheckState.OK]
    if verbose:
        found += [line for check in good for line in _one(check)]
    elif good:
        areas = Counter(check.name.partition(":")[0] for check in good)
        text = ", ".join(f"{name} ({n})" if n > 1 else name for name, n in areas.items())
        found += _paragraph(CheckState.OK, f"{text}; --verbose lists each")
    count = Counter(check.state for check in answer.checks)
    total = ", ".join(f"{count[state]} {state.value}" for state in CheckState)
    return [*found, "", total]


def _one(check: CheckView) -> list[str]:
    costs = [f"costs: {check.cost}"] if check.cost else []
    return _paragraph(check.state, f"{check.name}: {check.why}", costs, check.remedy)


def _features(state: CheckState, missing: list[CheckView], remedy: str) -> list[str]:
    names: dict[str, list[str]] = {}
    for check in missing:
        names.setdefault(check.cost, []).append(check.name.removeprefix(checks.KERNEL))
    costs = [f"{', '.join(same)}: {cost}" for cost, same in names.items()]
    subject = "1 feature is" if len(missing) == 1 else f"{len(missing)} features are"
    return _paragraph(state, f"{checks.KERNEL}{subject} missing", costs, remedy)


def _paragraph(
    state: CheckState, text: str, costs: Iterable[str] = (), remedy: str = ""
) -> list[str]:
    details = [*costs, *([f"to do: {remedy}"] if remedy else [])]
    return [
        *output.wrap(output.clean(text), f"{state.value:<8} ", " " * 9),
        *(line for each in details for line in output.wrap(output.clean(each), " " * 11, " " * 13)),
    ]
