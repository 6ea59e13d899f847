"""Steps of a switch: each says what is still missing, and what to write so that it comes about.

Whether a step is done stands in the API server alone, so a command that was killed goes on where it
was when it is given again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal, NamedTuple

from koord_scheduler.cli.switching.look import Look
from koord_scheduler.cli.switching.names import MANAGER_FIELDS
from koord_scheduler.kube.trees import Ref, Write, write
from koordlet.kube.client import Client
from koordlet.kube.errors import KubeError, RefusedError

Verb = Literal["create", "patch", "scale", "delete", "move", "wait", "leave"]
EVERY_S = 1.0
_DONE = ""


class Step(NamedTuple):
    """``missing``: what is not yet so; empty where the step is done. ``writes``: what brings it
    about; sent when it differs from what was sent last. ``limit_s``: without any progress."""

    role: str
    verb: Verb
    what: str
    why: str
    missing: Callable[[Look], str] = lambda _: _DONE
    writes: Callable[[Look], Iterable[Write]] = lambda _: ()
    reads: tuple[Ref, ...] = ()
    limit_s: float = 60.0


class StuckError(Exception):
    """A step did not come about in its time, or was refused. The text says which, what is missing,
    what to do."""


Reader = Callable[[tuple[str, ...], tuple[Ref, ...]], Awaitable[Look]]
"""Look at these roles and objects."""


async def carry_out(
    client: Client,
    steps: Iterable[Step],
    read: Reader,
    tell: Callable[[Step, str], None],
    *,
    every_s: float = EVERY_S,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """All of them, in their order. ``tell`` is called with each step and what it waits for, at each
    change; empty when it is done. Raises StuckError."""
    for step in steps:
        await _one(client, step, read, tell, every_s, clock)


async def _one(
    client: Client,
    step: Step,
    read: Reader,
    tell: Callable[[Step, str], None],
    every_s: float,
    clock: Callable[[], float],
) -> None:
    sent: tuple[Write, ...] = ()
    before, until_s, error = None, clock() + step.limit_s, ""
    while True:
        try:
            seen = await read((step.role,) if step.role else (), step.reads)
            missing = step.missing(seen)
            if not missing:
                tell(step, "")
                return
            if missing != before:
                tell(step, missing)
                before, until_s = missing, clock() + step.limit_s
            wanted = tuple(step.writes(seen))
            if wanted and wanted != sent:
                for each in wanted:
                    await write(client, each, MANAGER_FIELDS)
                sent, error = wanted, ""
        except KubeError as failed:
            # A server that restarts meanwhile is waited for; a refusal stays one.
            if isinstance(failed, RefusedError) and not (failed.passing or failed.conflict):
                raise _stuck(step, str(failed)) from None
            error = f"; {failed}"
        if clock() >= until_s:
            waited = f"{before or 'not begun'} after {step.limit_s:.0f} s{error}"
            raise _stuck(step, waited)
        await asyncio.sleep(every_s)


def _stuck(step: Step, why: str) -> StuckError:
    return StuckError(
        f"{step.role or 'all'}: {step.what}: {why}. Nothing more was changed. Mend it and give the "
        "same command again, which goes on from here, or go back with --back"
    )
