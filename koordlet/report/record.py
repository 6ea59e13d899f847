"""What the actuator and the answers to runtimes have done, as records of decisions."""

from __future__ import annotations

from collections.abc import Iterator

from koordlet.actuator.outcome import Outcome
from koordlet.decision.answer import Combined
from koordlet.decision.names import shown
from koordlet.decision.plan import Result
from koordlet.decision.record import Kind, Record
from koordlet.decision.resource import Value
from koordlet.decision.snapshot import Snapshot
from koordlet.decision.strategy import Subject
from koordlet.decision.why import Why

_KINDS = {
    Result.WRITTEN: Kind.WRITE,
    Result.RESTORED: Kind.WRITE,
    Result.WOULD_WRITE: Kind.WRITE,
    Result.WOULD_RESTORE: Kind.WRITE,
    Result.IN_FORCE: Kind.NOTE,
    Result.CONFLICT: Kind.CONFLICT,
}


def record_of(outcome: Outcome, wake: str = "") -> Record:
    """What the actuator's ``audit`` hears, as a record."""
    return Record(
        time=outcome.time,
        kind=_KINDS.get(outcome.result, Kind.REFUSAL),
        owner=outcome.owner,
        why=outcome.why,
        cgroup=shown(outcome.cgroup),
        resource=outcome.resource,
        previous=outcome.found,
        wanted=outcome.wanted,
        result=outcome.result,
        detail=outcome.text,
        wake=wake,
    )


def answer_records(
    combined: Combined, subject: Subject, snapshot: Snapshot, *, observing: bool
) -> Iterator[Record]:
    """What a container gets through the runtime that asked about it."""
    wake = snapshot.wake.title

    def record(owner: str, resource: str, value: Value, why: Why) -> Record:
        return Record(
            time=snapshot.time,
            kind=Kind.WRITE,
            owner=owner,
            why=why,
            cgroup=shown(subject.cgroup),
            resource=resource,
            wanted=value,
            result="would-answer" if observing else "answered",
            wake=wake,
        )

    for wanted in combined.settings:
        yield record(wanted.owner, wanted.resource, wanted.value, wanted.why)
    for env in combined.env:
        yield record(_hook_of(env.why), f"env {env.name}", env.value, env.why)
    for mount in combined.mounts:
        yield record(_hook_of(mount.why), f"mount {mount.destination}", mount.source, mount.why)
    for device in combined.devices:
        yield record(_hook_of(device.why), "device", device.node.path, device.why)


def _hook_of(why: Why) -> str:
    """The first part of a rule's id is the name of the hook."""
    return why.rule.partition(".")[0]
