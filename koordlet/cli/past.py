"""Where a command that looks back gets the past from: the daemon, or what one has left on disk."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from koordlet.admin.client import Client, Fault, NoAccessError, NotReachableError, RefusedError
from koordlet.admin.daemon import InvalidError, NotFoundError
from koordlet.cli.connect import connect, named_socket
from koordlet.cli.main import warn
from koordlet.cli.times import TimeRange, parse_range, parse_time
from koordlet.history.source import DaemonSource, Source

if TYPE_CHECKING:
    from koordlet.diagnosis.held import Changed, File
    from koordlet.diagnosis.why import Left
    from koordlet.history.disk import DiskSource

T = TypeVar("T")


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[Source]:
    """``--state-dir`` where that is given. Else the daemon; where none answers and its state can
    be read, that, with a word on stderr. Raises NotReachableError, NothingThereError and
    ConfigErrors."""
    if args.state_dir:
        named = on_disk(args)
        yield named
        damage_told(named)
        return
    try:
        client = _answering(args)
    except NoAccessError:
        raise
    except NotReachableError as error:
        found = _readable(args, on_disk)
        if found is None:
            raise
        warn(f"{error} Reading what it has left in {found.name}.")
        yield found
        damage_told(found)
        return
    with client:
        source = DaemonSource(client)
        yield source
        damage_told(source)


def told(
    args: argparse.Namespace, ask: Callable[[Client], T], look: Callable[[Left, float], T]
) -> T:
    """Return the answer of ``ask``; where no daemon answers and its state can be read, and with
    ``--state-dir``, what ``look`` makes of that and of the time. Raises as ``opened``."""
    source = client_or_remains(args)
    if isinstance(source, Client):
        with source:
            return ask(source)
    try:
        return look(source, time.time())
    except NotFoundError as error:
        raise RefusedError(Fault.NOT_FOUND, str(error)) from None
    except InvalidError as error:
        raise RefusedError(Fault.INVALID, str(error)) from None


def client_or_remains(args: argparse.Namespace) -> Client | Left:
    """The daemon; where none answers and its state can be read, and with ``--state-dir``, what one
    has left. Raises as ``opened``."""
    if args.state_dir:
        return remains(args)
    try:
        return _answering(args)
    except NoAccessError:
        raise
    except NotReachableError as error:
        found = _readable(args, remains)
        if found is None:
            raise
        warn(f"{error} Reading what it has left in {found.source}.")
        return found


def _answering(args: argparse.Namespace) -> Client:
    """A daemon that has said something. Raises as ``connect``."""
    with ExitStack() as stack:
        client = stack.enter_context(connect(args))
        client.greet()
        stack.pop_all()
    return client


def on_disk(args: argparse.Namespace) -> DiskSource:
    """What is in ``--state-dir``, or in the state directory of the configuration. Raises
    NothingThereError."""
    from koordlet.history.disk import DiskSource

    where = _where(args)
    return DiskSource(where.store, where.decisions, where.step_s)


def remains(args: argparse.Namespace) -> Left:
    """The same for a diagnosis, with the journal. Raises NothingThereError."""
    from koordlet.history.disk import remains as left

    where = _where(args)
    changed, notes = _changed(where.journal, is_of_this_machine=not args.state_dir)
    return left(where.store, where.decisions, where.step_s, changed, notes)


class _Where(NamedTuple):
    store: str
    decisions: str
    journal: str
    step_s: int


def _where(args: argparse.Namespace) -> _Where:
    from koordlet.actuator.journal.journal import FILE_NAME
    from koordlet.cli.settings import find
    from koordlet.engine.parts import decisions_path, journal_path, tsdb_path

    config = find(args.config).config
    step_s = int(config.tsdb.coarse_resolution_s)
    if args.state_dir:
        store, decisions, journal = (
            os.path.join(args.state_dir, name) for name in ("tsdb", "decisions", FILE_NAME)
        )
        return _Where(store, decisions, journal, step_s)
    return _Where(tsdb_path(config), decisions_path(config), journal_path(config), step_s)


def _changed(
    path: str, *, is_of_this_machine: bool
) -> tuple[Mapping[File, Changed] | None, tuple[str, ...]]:
    """The values of koordlet that are in force by its journal, None where that is not known; and
    what is wrong with it."""
    from koordlet.actuator.journal.load import load
    from koordlet.decision.names import shown
    from koordlet.diagnosis.held import Changed
    from koordlet.kernel.linux import LinuxHost
    from koordlet.kernel.proc.files import boot_id

    try:
        found = load(path, boot_id(LinuxHost()))
    except OSError as error:
        return None, (f"{path} cannot be read: {error.strerror or error}",)
    notes = tuple(f"the journal {path}: {each}" for each in found.damage)
    if found.other_boot or not os.path.exists(path):
        return ({} if is_of_this_machine and found.other_boot else None), notes
    changed = {
        (shown(key.cgroup), str(key.resource)): Changed(
            entry.owner, entry.ours[-1] if entry.ours else None, entry.original.since
        )
        for key, entry in found.entries.items()
    }
    return changed, notes


def _readable(args: argparse.Namespace, read: Callable[[argparse.Namespace], T]) -> T | None:
    """None where nothing can be read, and where a socket was named: whose state this would be is
    not known."""
    from koordlet.history.disk import NothingThereError

    if named_socket(args):
        return None
    try:
        return read(args)
    except NothingThereError:
        return None


def damage_told(source: Source) -> None:
    """Say what of the history is damaged and so not in the answer."""
    for each in source.damaged:
        warn(f"not in this answer, because it is damaged: {each}")


def newest(source: Source) -> float:
    """Time of the newest sample. Raises RefusedError where there is none."""
    now = time.time()
    found = source.query_range("node_cpu_usage", {}, now - 1.0, now, 1.0, "last").newest
    if found is None:
        raise RefusedError(Fault.NOT_FOUND, f"{source.name}: the store is empty")
    return found


def time_of(args: argparse.Namespace) -> float:
    """``--at``. Raises ValueError."""
    try:
        return parse_time(args.at, time.time())
    except ValueError as error:
        raise ValueError(f"--at {error}") from None


def instant(args: argparse.Namespace) -> float | None:
    """``--at``, None where it is not given. Raises ValueError."""
    return time_of(args) if args.at else None


def range_of(args: argparse.Namespace) -> TimeRange:
    """``--from`` and ``--to``. Raises ValueError."""
    try:
        return parse_range(args.start, args.end, time.time())
    except ValueError as error:
        raise ValueError(f"--from and --to: {error}") from None
