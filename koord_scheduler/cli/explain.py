"""``koord-scheduler explain NODE``: each term of what a node offers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

import msgspec

from koord_scheduler.cli.errors import BadInputError, WrongUseError
from koord_scheduler.cli.output import clean, columns, cores, emit, size
from koord_scheduler.cli.seen import configuration, looked, seen
from koord_scheduler.model.amounts import Amounts
from koord_scheduler.overcommit.explain import Explanation, Term, explain
from koord_scheduler.overcommit.noderesource import TIERS

_HEADER = ("", "", ">CPU", ">MEMORY", "")


def main(args: argparse.Namespace) -> int:
    if args.pods < 0:
        raise WrongUseError("--pods must not be below 0")
    found = seen(args, args.node)
    inputs = [each for each in found.inputs() if each.node.name == args.node]
    if not inputs:
        raise BadInputError(f"there is no node {args.node!r}")
    inputs, at_s = looked(args, inputs)
    answer = explain(inputs[0], configuration(found.config, "ConfigMap"), at_s)
    if answer is None:
        raise BadInputError("colocation-config cannot be read, so nothing is computed")
    emit(_tree(args.node, answer), args.output, lambda: _lines(args.node, answer, args.pods))
    return 0


def _tree(node: str, answer: Explanation) -> dict[str, Any]:
    """What scripts get: CPU in milli-cores, memory in bytes."""
    wanted = answer.plan
    return {
        "node": node,
        "reset": wanted.reset,
        "problems": list(wanted.problems),
        "strategy": msgspec.to_builtins(wanted.strategy),
        "resources": dict(wanted.resources),
        "annotations": dict(wanted.annotations),
        "labels": dict(wanted.labels),
        "zones": {name: msgspec.to_builtins(each) for name, each in wanted.zones.items()},
        "batch": [msgspec.to_builtins(each) for each in answer.batch],
        "mid": [msgspec.to_builtins(each) for each in answer.mid],
        "pods": [msgspec.to_builtins(each) for each in answer.pods],
    }


def _lines(node: str, answer: Explanation, most: int) -> list[str]:
    wanted = answer.plan
    lines = [f"node {clean(node)}"]
    if wanted.reset:
        lines += ["", f"offers nothing to batch and mid pods: {clean(wanted.reset)}"]
    lines += [f"problem: {clean(each)}" for each in wanted.problems]
    for title, terms in (("batch", answer.batch), ("mid", answer.mid)):
        if terms:
            lines += ["", *columns((title.upper(), *_HEADER[1:]), map(_cells, terms))]
    if wanted.zones:
        rows = [(name, cores(z.cpu_milli), size(z.memory_bytes)) for name, z in _zones(answer)]
        lines += ["", *columns(("ZONE", ">BATCH-CPU", ">BATCH-MEMORY"), rows)]
    others = {k: v for k, v in wanted.resources.items() if v is not None and k not in TIERS}
    if others:
        amounts = [(name, str(value)) for name, value in others.items()]
        lines += ["", *columns(("DEVICE RESOURCE", ">AMOUNT"), amounts)]
    lines += _pods(answer, most)
    return lines


def _zones(answer: Explanation) -> Iterable[tuple[str, Amounts]]:
    return sorted(answer.plan.zones.items())


def _cells(term: Term) -> tuple[str, str, str, str, str]:
    cpu, memory = cores(term.amount.cpu_milli), size(term.amount.memory_bytes)
    if term.factor is not None:
        cpu = f"{term.factor:.2f}"
    if term.sign:  # a line that only shows what another is made of counts for neither
        cpu, memory = (
            text if counts else "" for text, counts in zip((cpu, memory), term.counts, strict=True)
        )
    else:
        cpu, memory = f"({cpu})", f"({memory})"
    return term.name, term.sign or " ", cpu or " ", memory or " ", term.about


def _pods(answer: Explanation, most: int) -> list[str]:
    shown = answer.pods[:most]
    if not shown:
        return []
    rows = [
        (
            each.key,
            cores(each.requested.cpu_milli),
            cores(each.used.cpu_milli),
            size(each.requested.memory_bytes),
            size(each.used.memory_bytes),
            each.why,
        )
        for each in shown
    ]
    header = ("POD", ">CPU-REQUEST", ">CPU-USED", ">MEMORY-REQUEST", ">MEMORY-USED", "WHY")
    lines = ["", *columns(header, rows)]
    left = len(answer.pods) - len(shown)
    return [*lines, f"and {left} more (--pods N)"] if left else lines
