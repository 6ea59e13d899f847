"""``koordlet pause`` and ``resume``: by the daemon where one runs, else by this process."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from koordlet.admin.client import Client, NoAccessError, NotReachableError
from koordlet.admin.daemon import InvalidError, NotFoundError
from koordlet.admin.undo import PausedView, PauseView, RestoreView, ResumedView
from koordlet.cli import output, restore
from koordlet.cli.connect import socket_of
from koordlet.cli.main import Exit, complain
from koordlet.cli.settings import Settings
from koordlet.cli.show.pauses import table

if TYPE_CHECKING:
    from koordlet.pause.pauses import Pauses

T = TypeVar("T")


class Listed(msgspec.Struct, frozen=True):
    pauses: tuple[PauseView, ...]


def pause(args: argparse.Namespace) -> int:
    if args.list:
        return _list(args)

    def ask(client: Client) -> PausedView:
        return client.pause(args.names, args.cgroups, args.for_s, args.reason)

    def alone(settings: Settings) -> PausedView:
        return _pause(settings, args)

    answer = _answer(args, ask, alone)
    if isinstance(answer, int):
        return answer
    output.emit(answer, args.output, lambda: _paused_lines(answer))
    if answer.problem:
        return complain(answer.problem, Exit.BAD)
    return Exit.OK if answer.restored.complete else Exit.BAD


def resume(args: argparse.Namespace) -> int:
    def ask(client: Client) -> ResumedView:
        return client.resume(args.names, args.cgroups)

    def alone(settings: Settings) -> ResumedView:
        return _resume(settings, args)

    answer = _answer(args, ask, alone)
    if isinstance(answer, int):
        return answer
    output.emit(answer, args.output, lambda: _resumed_lines(answer))
    return complain(answer.problem, Exit.BAD) if answer.problem else Exit.OK


def _list(args: argparse.Namespace) -> int:
    def ask(client: Client) -> Listed:
        return Listed(client.status().pauses)

    def alone(settings: Settings) -> Listed:
        return Listed(_views(_state(settings)))

    answer = _answer(args, ask, alone)
    if isinstance(answer, int):
        return answer
    output.emit(answer, args.output, lambda: table(answer.pauses) or ["Nothing is paused."])
    return Exit.OK


def _answer(
    args: argparse.Namespace, ask: Callable[[Client], T], alone: Callable[[Settings], T]
) -> T | int:
    """The daemon's; without one what this process did. An exit code where neither works."""
    output.log_to_stderr()
    settings = restore.usable(args.config)
    if settings is None:
        return Exit.BAD
    try:
        try:
            with Client(socket_of(args, settings.config)) as client:
                return ask(client)
        except NoAccessError:
            raise
        except NotReachableError:
            return alone(settings)
    except (OSError, NotFoundError) as error:
        return complain(error, Exit.BAD)
    except InvalidError as error:
        return complain(error, Exit.USAGE)


def _state(settings: Settings) -> Pauses:
    """Raises PermissionError: to who must not see it, it is not damaged."""
    from koordlet.kernel.linux import LinuxHost
    from koordlet.pause.file import FILE_NAME
    from koordlet.pause.pauses import Pauses

    path = os.path.join(settings.config.paths.state_dir, FILE_NAME)
    with contextlib.suppress(FileNotFoundError), open(path, "rb"):
        pass
    return Pauses(path, LinuxHost())


def _views(pauses: Pauses) -> tuple[PauseView, ...]:
    from koordlet.views.undo import views

    return views(pauses)


def _pause(settings: Settings, args: argparse.Namespace) -> PausedView:
    """On disk, so that the next start comes up paused; then back, as ``koordlet restore``. Raises
    OSError, NotFoundError and InvalidError."""
    from koordlet.actuator.journal.journal import JournalBusyError
    from koordlet.views import undo

    paths = [_path(settings, each) for each in args.cgroups]
    known = {each.cgroup for each in settings.config.applications}
    for path in paths:
        if path not in known:
            _check_there(settings, path)
    pauses = _state(settings)
    wanted = undo.make(
        args.names,
        paths,
        for_s=args.for_s,
        reason=args.reason,
        by=_myself(),
        now=_now(),
    )
    pauses.begin(wanted)
    follows: tuple[str, ...] = ()
    try:
        restored, follows = _put_back(settings, pauses)
        problem = pauses.problem
    except JournalBusyError as error:
        restored = RestoreView(dry_run=False, complete=False)
        problem = (
            f"{error}, which does not answer on {socket_of(args, settings.config)}. It "
            f"reads {pauses.path} within a second if it works at all; else stop it, "
            "`systemctl stop koordlet`, and pause again"
        )
    shown = tuple(undo.view(each, pauses) for each in wanted)
    return PausedView(pauses=shown, restored=restored, follows=follows, problem=problem)


def _put_back(settings: Settings, pauses: Pauses) -> tuple[RestoreView, tuple[str, ...]]:
    """What the pauses cover. Raises OSError, and JournalBusyError while a daemon lives."""
    from koordlet.actuator.actuator import Actuator
    from koordlet.actuator.journal.journal import Journal
    from koordlet.actuator.restore import let_go, report, take_back_from_systemd, together
    from koordlet.engine.pausing import release
    from koordlet.engine.restored import restore_view
    from koordlet.engine.traffic import PART, devices_path, restore_devices
    from koordlet.pause.model import ScopeKind, whole

    host, knobs, boot = restore.machine(settings)
    journal = Journal(settings.journal, boot_id=boot)
    try:
        actuator, now, time = Actuator(knobs, journal), host.monotonic(), host.time()
        outcomes, follows = release(actuator, knobs.layout, pauses.current, now=now, time=time)
        found = report(outcomes, knobs, journal)
        held = journal.entries
        told = take_back_from_systemd(knobs, settings.journal, boot, time=time, held=held)
        found = together(found, told)
    finally:
        journal.close()
    if any(pause.scope.kind is ScopeKind.ALL for pause in pauses.current):
        found = together(found, let_go(knobs, settings.journal, boot, time))
    if whole(pauses.current, PART) is not None:
        path = devices_path(settings.config.paths.state_dir)
        found = together(found, restore_devices(host, path, boot, time))
    return restore_view(found, dry_run=False), follows


def _resume(settings: Settings, args: argparse.Namespace) -> ResumedView:
    """A daemon that runs but cannot be asked reads the file. Raises NotFoundError."""
    from koordlet.views import undo

    pauses = _state(settings)
    paths = [_path(settings, each) for each in args.cgroups]
    wanted = undo.to_end(pauses.current, args.names, paths)
    shown = {each.scope: undo.view(each, pauses) for each in pauses.current}
    ended = pauses.end(wanted)
    return ResumedView(
        ended=tuple(shown[each.scope] for each in ended),
        left=undo.views(pauses),
        problem=pauses.problem,
    )


def _path(settings: Settings, name: str) -> str:
    """The cgroup of an application of the configuration, or a path."""
    from koordlet.kernel.cgroup.cgroups import check_path

    known = {each.name: each.cgroup for each in settings.config.applications}
    path = known.get(name) or name.removeprefix(settings.config.paths.cgroup_root)
    path = path.strip("/")
    try:
        check_path(path)
    except ValueError as error:
        raise InvalidError(str(error)) from error
    if not path:
        raise InvalidError(f"{name!r} is the root cgroup, that is everything: name nothing for it")
    return path


def _check_there(settings: Settings, path: str) -> None:
    """Raises NotFoundError."""
    from koordlet.protocol.decode import nearest

    host, knobs, _ = restore.machine(settings)
    roots = knobs.layout.roots
    if any(host.exists(f"{root}/{path}") for root in roots):
        return
    above, _, name = path.rpartition("/")
    beside: set[str] = set()
    for root in roots:
        with contextlib.suppress(OSError):
            beside.update(host.subdirs(f"{root}/{above}".rstrip("/")))
    likely = nearest(name, sorted(beside))
    meant = f'; did you mean "{f"{above}/{likely}".lstrip("/")}"?' if likely else ""
    raise NotFoundError(
        f"{path!r} is no cgroup{meant}; without a daemon a pod must be named by its cgroup"
    )


def _myself() -> str:
    from koordlet.serving.caller import Caller, title

    sudo_user = os.environ.get("SUDO_USER", "")
    return title(Caller(os.getuid(), os.getpid()), sudo_user=sudo_user)


def _now() -> float:
    from koordlet.kernel.linux import LinuxHost

    return LinuxHost().time()


def _paused_lines(answer: PausedView) -> Iterable[str]:
    yield f"Nothing of this is written until `{restore.RESUME}`:"
    yield from (f"  {line}" for line in table(answer.pauses))
    yield ""
    yield from restore.values(answer.restored)
    if answer.follows:
        yield ""
    for each in answer.follows:
        yield from output.wrap(output.clean(each))


def _resumed_lines(answer: ResumedView) -> Iterable[str]:
    if answer.ended:
        yield "Resumed:"
        yield from (f"  {line}" for line in table(answer.ended))
    else:
        yield "Nothing was paused."
    if answer.left:
        yield ""
        yield "Still paused:"
        yield from (f"  {line}" for line in table(answer.left))
