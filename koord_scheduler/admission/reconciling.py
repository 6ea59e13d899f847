"""Profiles for pods that exist already and wait for a node (docs/reference/protocol.md 6.6)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from koord_scheduler.admission.pod_validation import class_problems
from koord_scheduler.admission.pods import check_pod, labels_of
from koord_scheduler.admission.profiles import (
    CONTROLLER_MANAGED,
    Draw,
    Profile,
    apply_profile,
    is_drawn,
    matching,
)
from koord_scheduler.admission.words import Gates, Step, Tree


class Reconciled(NamedTuple):
    """``pod`` None: nothing is to be written; ``why`` says so where something was wanted."""

    pod: Tree | None
    steps: tuple[Step, ...] = ()
    why: str = ""


def managed(profiles: Iterable[Profile], *, by_default: bool) -> tuple[Profile, ...]:
    """Those that concern pods which exist already. ``by_default``: all of them."""
    return tuple(
        each for each in profiles if by_default or each.labels.get(CONTROLLER_MANAGED) == "true"
    )


def falls_under(
    profile: Profile, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
) -> bool:
    """A selector that is missing matches nothing here."""
    (match,) = matching([profile], labels, namespace_labels, missing_matches=False)
    return not match.why


def reconciled(pod: Tree, profile: Profile, gates: Gates, draw: Draw) -> Reconciled:
    """``pod`` with the profile: scheduler, priority and resources stay as they are. Raises
    AdmissionError."""
    check_pod(pod)
    if not is_drawn(profile, draw):
        return Reconciled(None, why="not drawn")
    steps: list[Step] = []
    # A suffix that is there was appended before.
    suffixes = {
        key: suffix
        for key, suffix in (profile.spec.label_suffixes or {}).items()
        if not labels_of(pod).get(key, "").endswith(suffix)
    }
    spec = type(profile.spec)(
        **{
            name: getattr(profile.spec, name)
            for name in profile.spec.__struct_fields__
            if name != "label_suffixes"
        },
        label_suffixes=suffixes,
    )
    changed = apply_profile(
        copy.deepcopy(pod), profile._replace(spec=spec), {}, steps, scheduling=False
    )
    check_pod(changed, f"the pod with profile {profile.name}")
    if changed == pod:
        return Reconciled(None)
    if problems := class_problems(changed, pod, gates):
        # The validating webhook would refuse it each time.
        return Reconciled(None, why="; ".join(problems))
    return Reconciled(changed, tuple(steps))
