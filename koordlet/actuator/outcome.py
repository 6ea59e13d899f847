"""What the actuator answers: one outcome per setting, and what it owns."""

from __future__ import annotations

import errno

import msgspec

from koordlet.actuator.merge import Key
from koordlet.decision.names import harmless, shown
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource, Value
from koordlet.decision.why import Why


class Outcome(msgspec.Struct, frozen=True):
    """What became of one setting of ``owner``, or of one value being restored.

    ``wanted``: what should be in the file. ``found``: what was there; None when unreadable.
    ``written``: what the kernel holds after our write, read back; None when nothing was written.
    ``time``: unix seconds. ``text``: what happened, with errno and path where the kernel refused.
    """

    time: float
    owner: str
    cgroup: str
    resource: Resource
    path: str
    wanted: Value
    found: Value | None
    written: Value | None
    result: Result
    why: Why
    text: str = ""

    @property
    def key(self) -> Key:
        return Key(self.cgroup, self.resource)


class Owned(msgspec.Struct, frozen=True):
    """A file that koordlet has changed: who holds it, and what goes back into it.

    ``value``: what we wrote last, as read back. ``since``: unix seconds of the first write.
    """

    cgroup: str
    resource: Resource
    path: str
    owner: str
    value: Value | None
    original: Value
    since: float


def describe(error: Exception, path: str) -> str:
    """``EINVAL (Invalid argument): /sys/fs/cgroup/cpu/x/cpu.shares``; other errors as they are."""
    if not isinstance(error, OSError):
        return harmless(str(error))
    name = errno.errorcode.get(error.errno or 0, "error")
    return f"{name} ({error.strerror or error}): {shown(str(error.filename or path))}"


def is_gone(error: Exception) -> bool:
    """True for what an access to a removed cgroup raises: by path, or by a kept descriptor."""
    return isinstance(error, OSError) and error.errno in {errno.ENOENT, errno.ENODEV}


def signature(outcome: Outcome) -> tuple[object, ...]:
    """What must change before the same setting is worth telling again."""
    if outcome.result in {Result.WOULD_WRITE, Result.WOULD_RESTORE}:
        return outcome.result, outcome.wanted
    if outcome.result in {Result.REFUSED, Result.UNSUPPORTED}:
        return outcome.result, outcome.text
    return (outcome.result,)


_SMOOTH = ((Result.IN_FORCE,), (Result.WRITTEN,), (Result.RESTORED,))


def is_news(outcome: Outcome, before: tuple[object, ...] | None) -> bool:
    """Every write is; otherwise a changed signature, and a value in force only after trouble.

    ``before``: signature of the same setting after the previous pass, None the first time.
    """
    if outcome.written is not None:
        return True
    if outcome.result is Result.IN_FORCE:
        return before is not None and before not in _SMOOTH
    return signature(outcome) != before
