"""What a command about scheduling looks at: the API server as it is, files, or a journal."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from koord_scheduler.cli.cluster import cluster_of
from koord_scheduler.cli.errors import BadInputError, WrongUseError
from koord_scheduler.cli.output import clean
from koord_scheduler.cli.seen import read_documents, tell_ahead
from koord_scheduler.daemon.scheduler.setup import SetupError, load
from koord_scheduler.kube.scheduling import journal
from koord_scheduler.kube.scheduling.loading import World, from_server
from koord_scheduler.model.arrivals import is_ahead
from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.reading import instant_s
from koord_scheduler.place.load_reading import LOAD
from koord_scheduler.plan import made_up
from koord_scheduler.plan.profile import Profile, ProfileError
from koord_scheduler.plan.settings import with_settings
from koordlet.kube.client import Client
from koordlet.kube.errors import UnusableError

DEADLINE_S = 60.0
BUILT_IN = "built-in"
"""Word for the built-in profile in place of a file."""
_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MOST_NOTES = 20


class Looked(NamedTuple):
    """``now_s``: Unix time as of which it is looked at."""

    world: World
    now_s: float


def profiles_of(args: argparse.Namespace, config: str | None = None) -> tuple[Profile, ...]:
    """Of ``--config`` or of ``config``, with each ``--set``. Raises BadInputError and
    WrongUseError."""
    path = args.config if config is None else config
    try:
        found = load("" if path == BUILT_IN else path).profiles
    except SetupError as error:
        raise BadInputError(str(error)) from None
    try:
        found = with_settings(found, args.set)
        World(found)  # makes all plugins: what is wrong is told before anything is read
    except (ProfileError, ArgumentError) as error:
        raise WrongUseError(f"--set: {error}" if args.set else str(error)) from None
    return found


def look(
    args: argparse.Namespace,
    profiles: tuple[Profile, ...],
    *,
    extra: Iterable[Any] = (),
    until: journal.Until | None = None,
) -> Looked:
    """``extra``: objects of this command beside those of the source; pods among them are decided
    for whichever scheduler they name. ``args.empty``: there are no others than those and
    ``args.nodes``. ``until``: where a journal is left. Raises BadInputError,
    CredentialsError and KubeError."""
    world = World(profiles)
    at_s = time_of(args.at) if args.at else None
    if args.journal:
        now_s = _from_journal(args, world, at_s, until)
    elif args.files:
        for path in args.files:
            _take(world, read_documents(path), path)
        now_s = at_s or 0.0
    elif getattr(args, "empty", False):
        now_s = at_s or 0.0
    else:
        if at_s is not None:
            raise WrongUseError("--at needs --journal: the API server tells nothing of the past")
        _tell(asyncio.run(_from_cluster(args, world)))
        now_s = time.time()
    first = len(world.cluster.row)
    for text in getattr(args, "nodes", None) or ():
        try:
            made = list(made_up.nodes(text.removeprefix("+"), first))
        except made_up.MadeUpError as error:
            raise WrongUseError(f"--nodes {error}") from None
        first += len(made)
        _take(world, made, "--nodes")
    world.adopts = True
    _take(world, extra, "")
    if not world.cluster.row:
        raise BadInputError("there is no node: give some in a file or with --nodes")
    # A report of the future is one of a clock that is ahead.
    now_s = now_s or min(world.newest_s or time.time(), time.time())
    _date(world, now_s)
    world.tick(now_s)
    return Looked(world, now_s)


def _date(world: World, now_s: float) -> None:
    """Take the time away from reports of the future: they count as old, which is told."""
    cluster, ahead = world.cluster, []
    for name, row in cluster.row.items():
        load = cluster.get(LOAD, row)
        if load is not None and is_ahead(load.update_time_s, now_s):
            cluster.put(LOAD, name, msgspec.structs.replace(load, update_time_s=None))
            ahead.append(name)
    tell_ahead(ahead)


def _take(world: World, documents: Iterable[Any], where: str) -> None:
    try:
        made = [
            pod
            for each in documents
            for one in ([each] if isinstance(each, dict) else [])
            for pod in _expanded(one)
        ]
        world.take_all(made, where)
    except (UnusableError, made_up.MadeUpError) as error:
        raise BadInputError(f"{where}: {error}" if where else str(error)) from None


def _expanded(document: dict[str, Any]) -> Iterable[Any]:
    items = document.get("items")
    if isinstance(items, list):
        return [pod for each in items if isinstance(each, dict) for pod in _expanded(each)]
    return list(made_up.expanded(document))


async def _from_cluster(args: argparse.Namespace, world: World) -> list[str]:
    async with Client(cluster_of(args), agent="koord-scheduler", deadline_s=DEADLINE_S) as client:
        return await from_server(client, world)


def _from_journal(
    args: argparse.Namespace, world: World, at_s: float | None, until: journal.Until | None
) -> float:
    try:
        reached_s = journal.play(journal.read(args.journal), world, at_s, until)
    except journal.JournalError as error:
        raise BadInputError(f"{args.journal}: {error}") from None
    if at_s is not None and not world.counts:
        raise BadInputError(f"{args.journal}: it begins after {args.at}")
    return at_s if at_s is not None and until is None else reached_s


def _tell(notes: list[str]) -> None:
    for note in notes[:_MOST_NOTES]:
        print(f"koord-scheduler: {clean(note)}", file=sys.stderr)
    if len(notes) > _MOST_NOTES:
        print(f"koord-scheduler: and {len(notes) - _MOST_NOTES} more", file=sys.stderr)


def time_of(text: str) -> float:
    """Unix time of RFC 3339, of Unix seconds, or of ``2h`` (ago). Raises WrongUseError."""
    ago = _AGO.fullmatch(text)
    if ago:
        return time.time() - int(ago[1]) * _UNITS_S[ago[2]]
    found = instant_s(text)
    if found is None:
        try:
            found = float(text)
        except ValueError:
            found = -1.0
    if not 0 < found < 1e11:
        raise WrongUseError(f"--at {text}: write 2026-01-31T12:00:00Z, Unix seconds, or 2h (ago)")
    return found
