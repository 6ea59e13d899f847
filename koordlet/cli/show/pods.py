"""``koordlet pods``."""

from __future__ import annotations

import argparse

from koordlet.admin.model.usage import PodView
from koordlet.cli import output
from koordlet.cli.connect import connect
from koordlet.cli.main import Exit


def main(args: argparse.Namespace) -> int:
    with connect(args) as client:
        pods = client.pods()
    if args.names:
        for pod in pods:
            print(title(pod))
        return Exit.OK
    output.emit(pods, args.output, lambda: lines(pods))
    return Exit.OK


def lines(pods: tuple[PodView, ...]) -> list[str]:
    faults = [
        f"{title(pod)}: {output.clean(fault.path)}: {output.clean(fault.message)}"
        for pod in pods
        for fault in pod.faults
    ]
    by = next((pod.cold.method for pod in pods if pod.cold and pod.cold.method), "")
    title_of_cold = f"Cold memory, found by {by}" if by else "Memory that was reclaimed"
    return [
        *table(pods),
        *output.section(title_of_cold, cold(pods)),
        *output.section("Refused inputs", faults),
    ]


def cold(pods: tuple[PodView, ...]) -> list[str]:
    """Those of which something is cold, or comes back after it was reclaimed."""
    rows = []
    for pod in pods:
        found = pod.cold
        if found is None or not (
            found.method or found.confirmed_bytes or found.refault_bytes_per_s
        ):
            continue
        sizes = (found.file_bytes, found.anon_bytes, found.mapped_bytes, found.confirmed_bytes)
        refaults = output.size(found.refault_bytes_per_s)
        rows.append((title(pod), *map(output.size, sizes), refaults))
    header = ("NAME", ">PAGE CACHE", ">ANON", ">MAPPED", ">CONFIRMED", ">REFAULTS/S")
    return output.columns(header, rows) if rows else []


def table(pods: tuple[PodView, ...]) -> list[str]:
    """One line for each; CPU in cores, the pressure columns are the share of the last 10 s."""
    return output.columns(
        ("NAME", "KIND", "QOS", ">CPU", ">MEMORY", ">THROTTLED", ">PSI CPU", ">PSI MEM", "CGROUP"),
        (
            (
                title(pod),
                pod.kind.value,
                pod.qos,
                output.cores(pod.cpu_cores),
                output.size(pod.memory_bytes),
                _throttled(pod),
                output.percent(pod.pressure.cpu_some if pod.pressure else None),
                output.percent(pod.pressure.memory_some if pod.pressure else None),
                pod.cgroup if pod.present else f"{pod.cgroup} (absent)",
            )
            for pod in pods
        ),
    )


def _throttled(pod: PodView) -> str:
    if pod.throttled_ratio is None and pod.throttled_why:
        return f"{output.NOTHING} ({pod.throttled_why})"
    return output.ratio(pod.throttled_ratio)


def title(pod: PodView) -> str:
    name = pod.name or pod.uid
    return output.clean(f"{pod.namespace}/{name}" if pod.namespace else name)
