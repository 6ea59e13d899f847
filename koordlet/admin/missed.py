"""What ``doctor`` says about containers that were created without something they should have."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from koordlet.admin.model.doctor import CheckState, CheckView

SHOWN = 20
"""Pods, and of each pod findings, in full."""


class MissedView(msgspec.Struct, frozen=True, kw_only=True):
    """Something a container should have been created with and was not. ``has`` None: nothing of
    that name. ``exceeds``: it sees devices that are not its own."""

    pod: str
    container: str
    kind: str
    name: str
    wanted: str
    has: str | None
    exceeds: bool


def missed_checks(missed: Sequence[MissedView]) -> tuple[CheckView, ...]:
    """One line for each pod with containers that were created without something."""
    pods: dict[str, list[MissedView]] = {}
    for each in missed:
        pods.setdefault(each.pod, []).append(each)
    found = [_missed(pod, each) for pod, each in list(pods.items())[:SHOWN]]
    if len(pods) > SHOWN:
        found.append(
            CheckView(
                name="missed adjustments",
                state=CheckState.LIMITED,
                why=f"{len(pods) - SHOWN} more pods",
                cost="as above",
                remedy="as above; `koordlet hooks POD` shows each",
            )
        )
    return tuple(found)


def _missed(pod: str, missed: Sequence[MissedView]) -> CheckView:
    exceeds = any(each.exceeds for each in missed)
    texts = (
        f"container {each.container}: {each.kind} {each.name} "
        + ("is not there" if each.has is None else f"is {each.has!r}")
        + f", not {each.wanted!r}"
        for each in missed[:SHOWN]
    )
    return CheckView(
        name=f"missed adjustments: {pod}",
        state=CheckState.FAIL if exceeds else CheckState.LIMITED,
        why="; ".join(texts),
        cost="it sees GPUs that are not its own"
        if exceeds
        else "it goes without what it asked for",
        remedy="restart the pod; variables need NRI or the CRI proxy, devices and mounts NRI",
    )
