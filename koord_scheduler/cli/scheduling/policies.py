"""``koord-scheduler diff OLD NEW`` of two policies: who would be elsewhere, before it happens."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

import msgspec

from koord_scheduler.cli.diff import main as diff_of_slo
from koord_scheduler.cli.errors import BadInputError, WrongUseError
from koord_scheduler.cli.output import clean, columns, emit
from koord_scheduler.cli.scheduling.simulate import curves, packing
from koord_scheduler.cli.scheduling.source import BUILT_IN, look, profiles_of
from koord_scheduler.cli.seen import read_documents
from koord_scheduler.kube.scheduling import journal, replaying
from koord_scheduler.kube.scheduling.loading import World
from koord_scheduler.plan.course import Course, decide
from koord_scheduler.plan.figures import Comparison, Figures, Moved, compare, figures

_KIND = "KubeSchedulerConfiguration"
_MOST_ROWS = 20
_MOST_AGAIN = 200_000


class Side(msgspec.Struct, frozen=True, kw_only=True):
    placed: int
    pending: int
    hash: str
    figures: Figures


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """``quotas``: quota -> resource -> (used with OLD, used with NEW), where they differ."""

    old: Side
    new: Side
    comparison: Comparison
    quotas: Mapping[str, Mapping[str, tuple[int, int]]]


def main(args: argparse.Namespace) -> int:
    """1 with ``--exit-code`` where any pod is elsewhere."""
    policies = [_is_policy(args.old), _is_policy(args.new)]
    if not any(policies):
        if args.set:
            raise WrongUseError(
                "--set goes with policies: a KubeSchedulerConfiguration, or built-in"
            )
        return diff_of_slo(args)
    if not all(policies):
        raise WrongUseError(f"OLD and NEW must both be a {_KIND} (or built-in), or neither")
    settings, args.set = args.set, []
    old_world, old = _course(args, args.old)
    args.set = settings
    new_world, new = _course(args, args.new)
    answer = Answer(
        old=_side(old_world, old),
        new=_side(new_world, new),
        comparison=compare(old, new),
        quotas=_quotas(old_world, new_world),
    )
    if args.html:
        from koord_scheduler.cli.scheduling import html

        html.write(args.html, html.difference(answer, curves(old_world), curves(new_world)))
    emit(answer, args.output, lambda: _lines(answer, args.all))
    return 1 if args.exit_code and answer.comparison.differs else 0


def _is_policy(path: str) -> bool:
    if path == BUILT_IN:
        return True
    if path == "live":
        return False
    return any(
        isinstance(each, dict) and each.get("kind") == _KIND for each in read_documents(path)
    )


def _course(args: argparse.Namespace, config: str) -> tuple[World, Course]:
    profiles = profiles_of(args, config)
    if args.journal and not args.at:
        return _day(args, World(profiles))
    world, now_s = look(args, profiles)
    if not args.pending_only:
        again = world.ours()
        if len(again) > _MOST_AGAIN:
            raise BadInputError(f"more than {_MOST_AGAIN} pods: give --pending-only")
        for key in again:
            world.again(key)
    return world, decide(world, now_s, preempts=not args.no_preemption)


def _day(args: argparse.Namespace, world: World) -> tuple[World, Course]:
    try:
        recorded = journal.read(args.journal)
        return world, replaying.course(recorded, world, preempts=not args.no_preemption)[1]
    except journal.JournalError as error:
        raise BadInputError(f"{args.journal}: {error}") from None


def _side(world: World, course: Course) -> Side:
    return Side(
        placed=course.placed,
        pending=len(course.decisions) - course.placed,
        hash=course.fingerprint,
        figures=figures(world.cluster),
    )


def _quotas(old: World, new: World) -> dict[str, dict[str, tuple[int, int]]]:
    was, now = _used(old), _used(new)
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for name in sorted({*was, *now}):
        before, after = was.get(name, {}), now.get(name, {})
        differing = {
            resource: (before.get(resource, 0), after.get(resource, 0))
            for resource in sorted({*before, *after})
            if before.get(resource, 0) != after.get(resource, 0)
        }
        if differing:
            found[name] = differing
    return found


def _used(world: World) -> dict[str, dict[str, int]]:
    quotas = world.parts.quotas
    if quotas is None:
        return {}
    return {
        name: dict(share.used)
        for tree in quotas.trees().values()
        for name, share in tree.shares.items()
    }


def _lines(answer: Answer, everything: bool) -> Iterator[str]:
    found = answer.comparison
    yield (
        f"{found.pods} pods: {len(found.moved)} would be on another node, "
        f"{len(found.lost)} lose theirs, {len(found.gained)} gain one"
    )
    yield f"evictions: {found.evicted_old} with OLD, {found.evicted_new} with NEW"
    most = len(found.moved) if everything else _MOST_ROWS
    for title, moved in (("LOSES", found.lost), ("GAINS", found.gained), ("MOVES", found.moved)):
        if moved:
            yield ""
            yield from columns((title, "OLD", "NEW"), _rows(moved, most))
            if len(moved) > most:
                yield f"and {len(moved) - most} more (--all)"
    if found.why:
        yield ""
        rows = [(str(number), why) for why, number in found.why.items()][:_MOST_ROWS]
        yield from columns((">PODS", "WHY THEY LOSE IT"), rows)
    if answer.quotas:
        yield ""
        rows4 = [
            (name, resource, str(was), str(now))
            for name, each in answer.quotas.items()
            for resource, (was, now) in each.items()
        ]
        yield from columns(("QUOTA", "RESOURCE", ">USED OLD", ">USED NEW"), rows4[:_MOST_ROWS])
    yield ""
    yield from packing(answer.old.figures, answer.new.figures, ("OLD", "NEW"))
    old, new = answer.old.figures, answer.new.figures
    yield f"nearly full nodes: {old.hot} with OLD, {new.hot} with NEW"


def _rows(moved: tuple[Moved, ...], most: int) -> Iterator[tuple[str, str, str]]:
    for each in moved[:most]:
        yield clean(each.pod), each.old, each.new
