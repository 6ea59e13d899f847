"""``koord-scheduler switch``: from Koordinator's components to ours, and back."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable

import msgspec

from koord_scheduler.cli.cluster import cluster_of
from koord_scheduler.cli.errors import BadInputError, WrongUseError
from koord_scheduler.cli.output import clean, columns, emit
from koord_scheduler.cli.switching.look import Look, look
from koord_scheduler.cli.switching.names import APPS, MANAGER_FIELDS
from koord_scheduler.cli.switching.objects import Ours, read_ours
from koord_scheduler.cli.switching.plan import Plan, plan_back, plan_forward, wanted
from koord_scheduler.cli.switching.steps import EVERY_S, Step, StuckError, carry_out
from koord_scheduler.kube.trees import Ref
from koordlet.kube.client import Client

_DEADLINE_S = 30.0
_PER_SECOND, _BURST = 50.0, 200


class Row(msgspec.Struct, frozen=True):
    """``missing``: what is not yet so; empty where the step is done already."""

    role: str
    action: str
    object: str
    why: str
    missing: str


class Answer(msgspec.Struct, frozen=True):
    """``problems``: why ``--apply`` or ``--back`` would do nothing."""

    steps: list[Row]
    notes: list[str]
    problems: list[str]


def main(args: argparse.Namespace) -> int:
    if args.origin != "koordinator":
        raise WrongUseError(f"--from {args.origin}: only koordinator is known")
    if (args.apply and (args.back or args.dry_run)) or not (
        args.apply or args.back or args.dry_run
    ):
        raise WrongUseError("give one of --dry-run, --apply and --back, or --dry-run --back")
    roles = tuple(filter(None, (each.strip() for each in args.roles.split(","))))
    unknown = [each for each in roles if each not in APPS.values()]
    if unknown:
        raise WrongUseError(f"--roles {unknown[0]}: there are {', '.join(APPS.values())}")
    ours = read_ours(args.deploy)
    try:
        return asyncio.run(_switch(args, ours, roles or tuple(APPS.values())))
    except StuckError as error:
        raise BadInputError(str(error)) from None


async def _switch(args: argparse.Namespace, ours: Ours, roles: tuple[str, ...]) -> int:
    async with Client(
        cluster_of(args),
        agent=MANAGER_FIELDS,
        per_second=_PER_SECOND,
        burst=_BURST,
        deadline_s=_DEADLINE_S,
    ) as client:

        async def read(roles: tuple[str, ...], others: tuple[Ref, ...] = ()) -> Look:
            return await look(client, roles, others)

        seen = await read(roles)
        seen = await read(roles, wanted(seen, ours))
        make = plan_back if args.back else plan_forward
        plan = make(seen, ours, roles, args.image)
        if args.dry_run or plan.problems:
            answer = _answer(plan, seen)
            emit(answer, args.output, lambda: _lines(answer))
            return 1 if plan.problems else 0
        for note in plan.notes:
            print(f"note: {clean(note)}")
        await carry_out(client, plan.steps, read, _tell, every_s=EVERY_S)
        print("all is done")
        return 0


def _tell(step: Step, missing: str) -> None:
    words = f"{step.role or 'all':<12} {step.verb:<7} {step.what}: {missing or 'done'}"
    print(clean(words), flush=True)


def _answer(plan: Plan, seen: Look) -> Answer:
    rows = [
        Row(each.role, each.verb, each.what, each.why, each.missing(seen)) for each in plan.steps
    ]
    return Answer(rows, list(plan.notes), list(plan.problems))


def _lines(answer: Answer) -> Iterable[str]:
    cells = (
        (
            each.role or "all",
            each.action,
            each.object,
            "" if each.action == "leave" else each.missing or "done",
            each.why,
        )
        for each in answer.steps
    )
    yield from columns(("ROLE", "ACTION", "OBJECT", "NOW", "WHY"), cells)
    for each in answer.notes:
        yield f"note: {clean(each)}"
    for each in answer.problems:
        yield f"problem: {clean(each)}"
    if answer.problems:
        print("koord-scheduler: nothing is changed while there are problems", file=sys.stderr)
