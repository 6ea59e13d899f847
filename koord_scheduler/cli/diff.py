"""``koord-scheduler diff``: what another configuration would change, before it is applied."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from koord_scheduler.cli.errors import BadInputError
from koord_scheduler.cli.output import NOTHING, amount, clean, columns, emit
from koord_scheduler.cli.seen import configuration, looked, read_config, seen
from koord_scheduler.kube.listing import Seen
from koord_scheduler.overcommit.configuration import Configuration
from koord_scheduler.services.compare import Difference, compare, totals

LIVE = "live"
_MOST_NAMES = 3


class Answer(msgspec.Struct, frozen=True):
    nodes: int
    nodes_that_differ: int
    totals: dict[str, tuple[int, int]]
    differences: list[Difference]


def main(args: argparse.Namespace) -> int:
    found = seen(args)
    inputs, at_s = looked(args, found.inputs())
    old, new = _side(args.old, found), _side(args.new, found)
    differences = compare(inputs, old, new, at_s)
    differing = {each.node for each in differences}
    answer = Answer(len(inputs), len(differing), totals(differences), differences)
    emit(answer, args.output, lambda: _lines(answer))
    return 1 if args.exit_code and differences else 0


def _side(name: str, found: Seen) -> Configuration:
    """A configuration with a key that is refused says nothing of what it would do."""
    if name == LIVE:
        return configuration(found.config, "ConfigMap")
    made = configuration(read_config(name), name)
    if any(each.refused for each in made.outcomes):
        raise BadInputError(f"{name}: the manager would refuse what stands above; correct it first")
    return made


def _lines(answer: Answer) -> list[str]:
    if not answer.differences:
        return [f"no difference on {answer.nodes} nodes"]
    alike: dict[tuple[str, str, str], list[str]] = {}
    for each in answer.differences:
        texts = _text(each.what, each.old), _text(each.what, each.new)
        alike.setdefault((each.what, *texts), []).append(each.node)
    rows = [(what, old, new, _names(nodes)) for (what, old, new), nodes in alike.items()]
    lines = columns(("WHAT", "OLD", "NEW", "NODES"), rows)
    lines += ["", f"{answer.nodes_that_differ} of {answer.nodes} nodes differ"]
    lines += (
        f"{name}: {amount(name, old)} -> {amount(name, new)} on these nodes together"
        for name, (old, new) in answer.totals.items()
    )
    return lines


def _names(nodes: list[str]) -> str:
    shown = ", ".join(nodes[:_MOST_NAMES])
    left = len(nodes) - _MOST_NAMES
    return f"{shown} and {left} more" if left > 0 else shown


def _text(what: str, value: Any) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, int) and not isinstance(value, bool) and not what.startswith("Node"):
        return amount(what, value)
    return clean(value if isinstance(value, str) else msgspec.json.encode(value).decode())
