"""``koord-scheduler record``: what the API server tells, into a journal that can be replayed."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import sys
import time
from dataclasses import replace
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from koord_scheduler.cli.cluster import cluster_of
from koord_scheduler.cli.errors import BadInputError, WrongUseError
from koord_scheduler.cli.scheduling.source import DEADLINE_S
from koord_scheduler.kube.scheduling.journal import Writer
from koord_scheduler.kube.scheduling.loading import LOADED
from koordlet.kube.client import Client
from koordlet.kube.kinds import Kind
from koordlet.kube.mirror import Change, Mirror
from koordlet.kube.objects import Metadata, Object

_LOOK_EVERY_S = 1.0
_DURATION = re.compile(r"(\d{1,6})([smhd])")
_SIZE = re.compile(r"(\d{1,6})(Mi|Gi)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "Mi": 1 << 20, "Gi": 1 << 30}
_Part = msgspec.Raw | msgspec.UnsetType


class _Metadata(Metadata, frozen=True, omit_defaults=True):
    creation_timestamp: _Part = msgspec.UNSET
    deletion_timestamp: _Part = msgspec.UNSET
    owner_references: _Part = msgspec.UNSET


class _Whole(Object, frozen=True, omit_defaults=True):
    """All that some reader looks at, as the server wrote it."""

    metadata: _Metadata = _Metadata()
    spec: _Part = msgspec.UNSET
    status: _Part = msgspec.UNSET
    topology_policies: _Part = msgspec.UNSET
    zones: _Part = msgspec.UNSET


def main(args: argparse.Namespace) -> int:
    lasts_s = _number(_DURATION, args.duration, "--for", "90s, 30m, 24h or 7d")
    most_bytes = _number(_SIZE, args.most, "--most", "512Mi or 4Gi")
    try:
        writer = Writer(args.out, most_bytes, time.time())
    except OSError as error:
        raise BadInputError(f"{args.out}: {error.strerror}") from None
    try:
        asyncio.run(_record(args, writer, lasts_s))
    except KeyboardInterrupt:
        pass
    finally:
        writer.close()
    print(f"{writer.entries} changes in {args.out}", file=sys.stderr)
    return 0


async def _record(args: argparse.Namespace, writer: Writer, lasts_s: float) -> None:
    end_s = time.monotonic() + lasts_s if lasts_s else float("inf")
    async with Client(cluster_of(args), agent="koord-scheduler", deadline_s=DEADLINE_S) as client:
        while time.monotonic() < end_s:
            await _until_full(client, writer, end_s)
            if writer.full:
                writer.turn(time.time())


async def _until_full(client: Client, writer: Writer, end_s: float) -> None:
    """Lists everything, then follows it."""
    mirrors = [_mirror(client, writer, each.kind) for each in LOADED]
    tasks = [asyncio.create_task(each.run()) for each in mirrors]
    ready = False
    try:
        while time.monotonic() < end_s and not writer.full:
            await asyncio.sleep(min(_LOOK_EVERY_S, max(end_s - time.monotonic(), 0.0)))
            for task in tasks:
                if task.done():
                    task.result()
            if not ready and all(each.synced or each.missing for each in mirrors):
                ready = True
                writer.ready(time.time())
            writer.flush()
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _mirror(client: Client, writer: Writer, kind: Kind[Any]) -> Mirror[_Whole]:
    whole: Kind[_Whole] = replace(kind, shape=_Whole)
    first = True

    def take(changes: tuple[Change[_Whole], ...]) -> None:
        nonlocal first
        now_s = time.time()
        for change in changes:
            item = change.new or change.old
            assert item is not None
            tree = msgspec.json.decode(msgspec.json.encode(item))
            writer.write(now_s, str(kind), tree, gone=change.new is None, first=first)
            # What was written need not be held: 140,000 pods are 500 MiB of JSON.
            for part in ("spec", "status", "zones"):
                force_setattr(item, part, msgspec.UNSET)
        first = False

    return Mirror(client, whole, take)


def _number(form: re.Pattern[str], text: str, option: str, like: str) -> int:
    if not text:
        return 0
    found = form.fullmatch(text)
    if found is None or not int(found[1]):
        raise WrongUseError(f"{option} {text}: write {like}")
    return int(found[1]) * _UNITS[found[2]]
