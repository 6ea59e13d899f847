"""``koord-scheduler nodes``: load, what is offered, and why."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from koord_scheduler.cli.output import amount, columns, emit, share, span
from koord_scheduler.cli.seen import configuration, looked, seen
from koord_scheduler.overcommit.noderesource import TIERS
from koord_scheduler.services.overview import NodeRow, overview

_HEADER = (
    "NODE",
    ">CPU",
    ">MEMORY",
    ">PODS",
    ">REPORT",
    *(f">{name.removeprefix('kubernetes.io/').upper()}" for name in TIERS),
    "WHY",
)


def main(args: argparse.Namespace) -> int:
    found = seen(args)
    inputs, at_s = looked(args, found.inputs())
    rows = overview(inputs, configuration(found.config, "ConfigMap"), at_s)
    emit(rows, args.output, lambda: columns(_HEADER, map(_cells, rows)))
    return 0


def _cells(row: NodeRow) -> list[str]:
    return [
        row.node,
        share(row.used_cpu_milli, row.capacity_cpu_milli),
        share(row.used_memory_bytes, row.capacity_memory_bytes),
        str(row.pods),
        span(row.report_age_s),
        *_offers(row),
        row.why,
    ]


def _offers(row: NodeRow) -> Iterator[str]:
    """What stands on the node; where another value is due, that as well."""
    for name in TIERS:
        offered, computed = row.offered.get(name), row.computed.get(name)
        text = amount(name, offered)
        yield text if offered == computed else f"{text} -> {amount(name, computed)}"
