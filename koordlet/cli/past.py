"""Where a command that looks back gets the past from: the daemon, or what one has left on disk."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from koordlet.admin.client import Fault, NoAccessError, NotReachableError, RefusedError
from koordlet.cli.arguments import SOCKET_VARIABLE
from koordlet.cli.connect import connect
from koordlet.cli.main import warn
from koordlet.cli.settings import find
from koordlet.cli.times import TimeRange, parse_range, parse_time
from koordlet.history.source import DaemonSource, Source

if TYPE_CHECKING:
    from koordlet.history.disk import DiskSource


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[Source]:
    """``--state-dir`` where that is given. Else the daemon; where none answers and its state can
    be read, that, with a word on stderr. Raises NotReachableError, NothingThereError and
    ConfigErrors."""
    if args.state_dir:
        yield on_disk(args)
        return
    try:
        client = connect(args)
    except NoAccessError:
        raise
    except NotReachableError as error:
        found = _left_behind(args)
        if found is None:
            raise
        warn(f"{error} Reading what it has left in {found.name}.")
        yield found
        return
    with client:
        yield DaemonSource(client)


def on_disk(args: argparse.Namespace) -> DiskSource:
    """What is in ``--state-dir``, or in the state directory of the configuration. Raises
    NothingThereError."""
    from koordlet.engine.parts import decisions_path, tsdb_path
    from koordlet.history.disk import DiskSource

    config = find(args.config).config
    step_s = int(config.tsdb.coarse_resolution_s)
    if args.state_dir:
        store_dir = os.path.join(args.state_dir, "tsdb")
        return DiskSource(store_dir, os.path.join(args.state_dir, "decisions"), step_s)
    return DiskSource(tsdb_path(config), decisions_path(config), step_s)


def _left_behind(args: argparse.Namespace) -> DiskSource | None:
    """None where nothing can be read, and where a socket was named: whose state this would be is
    not known."""
    from koordlet.history.disk import NothingThereError

    if args.socket or (SOCKET_VARIABLE in os.environ and not args.config):
        return None
    try:
        return on_disk(args)
    except NothingThereError:
        return None


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


def range_of(args: argparse.Namespace) -> TimeRange:
    """``--from`` and ``--to``. Raises ValueError."""
    try:
        return parse_range(args.start, args.end, time.time())
    except ValueError as error:
        raise ValueError(f"--from and --to: {error}") from None
