"""How many members of a gang find a node now, and what the next one lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from koord_scheduler.cli.output import clean
from koord_scheduler.kube.scheduling.loading import World
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.plan.explain import Explanation, explain
from koord_scheduler.plan.outcomes import Failure
from koord_scheduler.share.gang.permit import missing_of

Tree = dict[str, Any]


class Outlook(NamedTuple):
    """``waits``: members without a node; ``gated``: those of them behind scheduling gates;
    ``fits``: how many of the others find a node beside each other. ``needs``: so many must, before
    any may start. ``lacks``: the first that finds none, beside those that do."""

    waits: int
    gated: int
    fits: int
    needs: int
    lacks: Explanation | None

    def tree(self) -> Tree:
        return {**self._asdict(), "lacks": self.lacks.pod if self.lacks is not None else ""}

    def lines(self) -> Iterator[str]:
        if not self.waits:
            return
        gated = f" ({self.gated} more are behind scheduling gates)" if self.gated else ""
        tried = self.waits - self.gated
        yield (
            f"{self.fits} of {tried} members that wait find a node now{gated}; "
            f"{self.needs} must before any may start"
        )


def outlook(world: World, group: str) -> Outlook:
    """One member after the other, as if each could start alone. Changes nothing."""
    book = world.parts.gangs
    if book is None:
        return Outlook(0, 0, 0, 0, None)
    unplaced, pending = book.unplaced(group), book.pending(group)
    needs = sum(missing_of(book.members(each)) for each in book.gangs_of(group))
    lacking: Pod | None = None
    failed: set[int] = set()
    fits = 0
    with world.cluster.trial():
        for pod in pending:
            if pod.cls.number in failed:
                continue
            if isinstance(world.engine(pod).place(pod), Failure):
                lacking = lacking or pod
                failed.add(pod.cls.number)
            else:
                fits += 1
        found = explain(world.engine(lacking), lacking) if lacking is not None else None
    return Outlook(len(unplaced), len(unplaced) - len(pending), fits, needs, found)


def of_member(world: World, pod: Pod) -> Tree:
    """Of the gang of a pod that waits; empty without one."""
    book = world.parts.gangs
    if book is None or not pod.gang or pod.node:
        return {}
    group = book.group_of(pod.gang)
    return {"name": pod.gang, "gate": book.gate(group), **outlook(world, group).tree()}


def member_lines(gang: Tree) -> Iterator[str]:
    if not gang:
        return
    yield (
        f"member of gang {clean(gang['name'])}: {gang['fits']} of "
        f"{gang['waits'] - gang['gated']} members that wait find a node now, and {gang['needs']} "
        "must before any may start"
    )
    if gang["lacks"]:
        yield f"the first that finds none: {clean(gang['lacks'])} (explain gang says more)"
