"""What a command looks at: the API server's objects, or those of files, and the configuration."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from koord_scheduler.cli.cluster import cluster_of
from koord_scheduler.cli.errors import BadInputError
from koord_scheduler.cli.output import clean
from koord_scheduler.daemon import files
from koord_scheduler.daemon.files import FileError, parse_documents
from koord_scheduler.kube.listing import Seen, from_cluster, from_documents
from koord_scheduler.model.arrivals import is_ahead
from koord_scheduler.model.facts import Inputs
from koord_scheduler.overcommit.configuration import Configuration, load
from koord_scheduler.services.overview import newest_report_s
from koordlet.kube.client import Client
from koordlet.kube.errors import UnusableError

_MOST_BYTES = 1 << 30
_DEADLINE_S = 60.0
_MOST_NAMED = 10
AHEAD = "updateTime of the NodeMetric is ahead of this clock, so its age is unknown"


def seen(args: argparse.Namespace, node: str = "") -> Seen:
    """Raises BadInputError, CredentialsError and KubeError."""
    if args.files:
        documents = [each for path in args.files for each in read_documents(path)]
        try:
            return from_documents(documents, args.config_namespace, args.slo_config_name)
        except UnusableError as error:
            raise BadInputError(f"{', '.join(args.files)}: {error}") from None
    found = asyncio.run(_from_cluster(args, node))
    for note in found.notes:
        print(f"koord-scheduler: {clean(note)}", file=sys.stderr)
    return found


async def _from_cluster(args: argparse.Namespace, node: str) -> Seen:
    async with Client(cluster_of(args), agent="koord-scheduler", deadline_s=_DEADLINE_S) as client:
        return await from_cluster(client, args.config_namespace, args.slo_config_name, node)


class Looked(NamedTuple):
    """``now_s``: Unix time as of which it is looked at."""

    inputs: list[Inputs]
    now_s: float


def looked(args: argparse.Namespace, inputs: list[Inputs]) -> Looked:
    """Saved objects are looked at as of their last report, others as of now. The time of a report
    of the future is unknown, which is told."""
    now_s = time.time()
    found = [_dated(each, now_s) for each in inputs]
    if args.files:
        saved = newest_report_s(found)
        now_s = now_s if saved is None else min(saved, now_s)
    pairs = zip(inputs, found, strict=True)
    tell_ahead(old.node.name for old, new in pairs if old is not new)
    return Looked(found, now_s)


def _dated(inputs: Inputs, now_s: float) -> Inputs:
    metric = inputs.metric
    if metric is None or not is_ahead(metric.update_time_s, now_s):
        return inputs
    metric = msgspec.structs.replace(metric, update_time_s=None, fault=AHEAD)
    return msgspec.structs.replace(inputs, metric=metric)


def tell_ahead(nodes: Iterable[str]) -> None:
    """Say of which nodes the reports do not count."""
    names = sorted(nodes)
    if names:
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        text = clean(", ".join(names[:_MOST_NAMED]))
        print(f"koord-scheduler: {AHEAD}: {text}{more}", file=sys.stderr)


def configuration(data: Mapping[str, str] | None, where: str) -> Configuration:
    """What is wrong with it goes to stderr."""
    found = load(data, None)
    for each in found.outcomes:
        print(f"koord-scheduler: {where}, {each.key}: {clean(each.message)}", file=sys.stderr)
    return found


def read_documents(path: str) -> list[Any]:
    """The documents of a file in YAML or JSON; ``-``: of stdin. Raises BadInputError."""
    try:
        if path == "-":
            return parse_documents(path, sys.stdin.buffer.read(_MOST_BYTES + 1), _MOST_BYTES)
        return files.read_documents(path, _MOST_BYTES)
    except FileError as error:
        raise BadInputError(str(error)) from None


def read_config(path: str) -> Mapping[str, str]:
    """The data of a ConfigMap in a file: the object, or its data alone. Raises BadInputError."""
    for document in read_documents(path):
        if not isinstance(document, dict):
            continue
        data = document.get("data") if "kind" in document or "data" in document else document
        if document.get("kind", "ConfigMap") != "ConfigMap":
            continue
        if isinstance(data, dict) and all(isinstance(each, str) for each in data.values()):
            return data
        raise BadInputError(f"{path}: the values of a ConfigMap's data are texts that hold JSON")
    raise BadInputError(f"{path}: holds no ConfigMap and no data of one")
