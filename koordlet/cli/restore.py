"""``koordlet restore``: by the daemon where one runs, else from the journal it left."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from koordlet.actuator.journal.anchor import SUFFIX as ANCHOR
from koordlet.actuator.journal.journal import JournalBusyError
from koordlet.admin.client import Client, NoAccessError, NotReachableError
from koordlet.admin.undo import RestoreView
from koordlet.cli import output
from koordlet.cli.connect import socket_of
from koordlet.cli.main import Exit, complain, warn
from koordlet.cli.settings import Settings, find

if TYPE_CHECKING:
    from koordlet.kernel.knobs import Knobs
    from koordlet.kernel.linux import LinuxHost

RESUME = "koordlet resume"
_REMOVED = {False: "removed (left by a probe)", True: "would be removed (left by a probe)"}


def main(args: argparse.Namespace) -> int:
    output.log_to_stderr()
    settings = usable(args.config)
    if settings is None:
        return Exit.BAD
    try:
        how = {"dry_run": args.dry_run, "force": args.force}
        answer = _ask_daemon(socket_of(args, settings.config), **how)
        if answer is None:
            answer = from_journal(settings, **how)
    except (OSError, JournalBusyError) as error:
        return complain(error, Exit.BAD)
    output.emit(answer, args.output, lambda: lines(answer))
    for text in filter(None, (answer.damage, answer.problem)):  # of the journal, of the pause
        warn(text)
    return Exit.OK if answer.complete else Exit.BAD


def usable(file: str | None) -> Settings | None:
    """The configuration; without a file of the user's own the default paths do."""
    settings = find(file)
    if settings.error:
        warn(settings.error)
        if file:
            return None
        warn("going by the default paths instead")
    return settings


def _ask_daemon(socket: str, *, dry_run: bool, force: bool) -> RestoreView | None:
    """None when no daemon answers. The journal is then free, or its lock says what is wrong.
    Raises NoAccessError: whether a daemon is there only root can find out."""
    try:
        with Client(socket) as client:
            return client.restore(dry_run=dry_run, force=force)
    except NoAccessError:
        raise
    except NotReachableError:
        return None


def machine(settings: Settings) -> tuple[LinuxHost, Knobs, str]:
    """(host, knobs, boot id) for the work of a daemon that does not run. Raises OSError."""
    from koordlet.kernel.cgroup import layout
    from koordlet.kernel.cgroup.cgroups import Cgroups
    from koordlet.kernel.knobs import Knobs
    from koordlet.kernel.linux import LinuxHost
    from koordlet.kernel.proc import files as proc

    host, paths = LinuxHost(), settings.config.paths
    found = layout.detect(host, cgroup_root=paths.cgroup_root, proc_root=paths.proc_root)
    knobs = Knobs(host, Cgroups(host, found), proc_root=paths.proc_root, sys_root=paths.sys_root)
    return host, knobs, proc.boot_id(host, paths.proc_root)


def from_journal(settings: Settings, *, dry_run: bool, force: bool = False) -> RestoreView:
    """Raises OSError where the journal cannot be read, JournalBusyError while a daemon has it."""
    from koordlet.actuator.restore import RestoreReport, restore, sweep, together
    from koordlet.engine.restored import restore_view
    from koordlet.engine.traffic import devices_path, restore_devices

    paths = settings.config.paths
    is_there = _is_there(settings.journal) or _is_there(settings.journal + ANCHOR)
    try:
        host, knobs, boot = machine(settings)
    except OSError:
        if is_there:
            raise
        return RestoreView(dry_run=dry_run, complete=True)
    report = RestoreReport(())
    if is_there:
        time = host.time()
        report = restore(
            knobs,
            settings.journal,
            boot_id=boot,
            now=host.monotonic(),
            time=time,
            dry_run=dry_run,
            force=force,
        )
        devices = restore_devices(host, devices_path(paths.state_dir), boot, time, dry_run=dry_run)
        report = together(report, devices)
    roots = (paths.proc_root, paths.sys_root)
    return restore_view(sweep(report, host, knobs.layout, roots, dry_run=dry_run), dry_run=dry_run)


def _is_there(path: str) -> bool:
    """Raises OSError where that cannot be found out."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def lines(answer: RestoreView) -> list[str]:
    swept = [f"{each.path}: {each.why or _REMOVED[answer.dry_run]}" for each in answer.leftovers]
    found = [*values(answer), *map(output.clean, swept)]
    if answer.pause is not None:
        found += ["", f"koordlet is paused: nothing is written until `{RESUME}`."]
    return found


def values(answer: RestoreView) -> list[str]:
    """What went back, or would."""
    if not answer.values and answer.complete:
        return ["Nothing to put back: no value of koordlet is in force."]
    if not answer.values:
        return ["Nothing is known that could be put back."]
    table = output.columns(
        ("FILE", "NOW" if answer.dry_run else "BEFORE", "ORIGINAL", "RESULT", "WHY"),
        ((v.path, v.found, v.original, v.result, v.why) for v in answer.values),
    )
    if answer.complete:
        return table
    return [*table, "", "Not everything is back; the journal keeps what is missing."]
