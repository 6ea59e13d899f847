"""``koordlet restore``: by the daemon where one runs, else from the journal it left."""

from __future__ import annotations

import argparse
import os

from koordlet.actuator.journal import JournalBusyError
from koordlet.admin.client import Client, NoAccessError, NotReachableError
from koordlet.admin.model import RestoreView
from koordlet.cli import output
from koordlet.cli.main import Exit, complain, warn
from koordlet.cli.settings import Settings, find
from koordlet.daemon.record import restore_view


def main(args: argparse.Namespace) -> int:
    output.log_to_stderr()
    settings = find(args.config)
    if settings.error:
        warn(settings.error)
        if args.config:
            return Exit.BAD
        warn("going by the default paths instead")
    try:
        answer = _ask_daemon(args.socket or settings.config.api.socket, args.dry_run)
        if answer is None:
            answer = from_journal(settings, dry_run=args.dry_run)
    except (OSError, JournalBusyError) as error:
        return complain(error, Exit.BAD)
    output.emit(answer, args.output, lambda: lines(answer))
    return Exit.OK if answer.complete else Exit.BAD


def _ask_daemon(socket: str, dry_run: bool) -> RestoreView | None:
    """None when no daemon answers. The journal is then free, or its lock says what is wrong.
    Raises NoAccessError: whether a daemon is there only root can find out."""
    try:
        with Client(socket) as client:
            return client.restore(dry_run=dry_run)
    except NoAccessError:
        raise
    except NotReachableError:
        return None


def from_journal(settings: Settings, *, dry_run: bool) -> RestoreView:
    """Raises OSError where the journal cannot be read, JournalBusyError while a daemon has it."""
    from koordlet.actuator.restore import restore, together
    from koordlet.daemon.traffic import devices_path, restore_devices
    from koordlet.kernel import layout, proc
    from koordlet.kernel.cgroup import Cgroups
    from koordlet.kernel.knobs import Knobs
    from koordlet.kernel.linux import LinuxHost

    try:
        os.stat(settings.journal)
    except FileNotFoundError:
        return RestoreView(dry_run=dry_run, complete=True)
    host, paths = LinuxHost(), settings.config.paths
    found = layout.detect(host, cgroup_root=paths.cgroup_root, proc_root=paths.proc_root)
    boot, time = proc.boot_id(host, paths.proc_root), host.time()
    report = restore(
        Knobs(host, Cgroups(host, found), proc_root=paths.proc_root, sys_root=paths.sys_root),
        settings.journal,
        boot_id=boot,
        now=host.monotonic(),
        time=time,
        dry_run=dry_run,
    )
    devices = restore_devices(host, devices_path(paths.state_dir), boot, time, dry_run=dry_run)
    report = together(report, devices)
    if report.damaged_lines:
        warn(
            f"{report.damaged_lines} lines of {settings.journal} are damaged; what they told "
            "is lost"
        )
    return restore_view(report, dry_run=dry_run)


def lines(answer: RestoreView) -> list[str]:
    if not answer.values and answer.complete:
        return ["Nothing to put back: no value of koordlet is in force."]
    if not answer.values:
        return ["Nothing known to put back, but parts of the journal are lost."]
    table = output.columns(
        ("FILE", "NOW" if answer.dry_run else "BEFORE", "ORIGINAL", "RESULT", "WHY"),
        ((v.path, v.found, v.original, v.result, v.why) for v in answer.values),
    )
    if answer.complete:
        return table
    return [*table, "", "Not everything is back; the journal keeps what is missing."]
