"""The steps from ours to theirs."""

from __future__ import annotations

from collections.abc import Iterable

from koord_scheduler.cli.switching.carried import Carried, with_carried
from koord_scheduler.cli.switching.forward import (
    END_S,
    LEASE_S,
    ROLLOUT_S,
    point_webhooks,
)
from koord_scheduler.cli.switching.look import APP_OF, Look, service_of, workload
from koord_scheduler.cli.switching.names import MANAGER, OURS, THEIR_LABEL
from koord_scheduler.cli.switching.objects import Ours, applied, is_applied, mark, shared
from koord_scheduler.cli.switching.recording import (
    forget,
    remembered,
    selector,
    webhooks_of_ours,
    workload_ref,
)
from koord_scheduler.cli.switching.states import (
    led_by_them,
    replicas,
    rolled_out,
    scaled_away,
    selector_of,
)
from koord_scheduler.cli.switching.steps import Step
from koord_scheduler.kube.trees import Tree, Write, ref_of


def back(
    role: str, ours: Ours, seen: Look, found: Carried, image: str, *, same_lease: bool
) -> Iterable[Step]:
    theirs = remembered(seen, role)
    wanted = replicas(theirs)
    if role == MANAGER and role in seen.ours:
        yield _unregister(with_carried(ours.workloads[role], found, image))
    if same_lease and wanted:
        yield _begin_theirs(role, theirs, "waits for the lease; ours still leads")
    if role == MANAGER:
        yield from map(_deleted, webhooks_of_ours(seen, role))
    if role == MANAGER and wanted and not mark(seen.service):
        given = selector(seen, role) or selector_of(APP_OF[role], THEIR_LABEL)
        own = {key: None for key in selector_of(APP_OF[role], THEIR_LABEL) if key not in given}
        yield point_webhooks(
            service_of(seen),
            "theirs answers",
            {**given, **own},
            lambda look: look.their_pods(role),
        )
    yield _end_ours(role)
    if not same_lease and wanted:
        yield _begin_theirs(role, theirs, "ours has ended")
    if wanted:
        yield Step(
            role,
            "wait",
            f"Lease of {APP_OF[role]}",
            "theirs leads",
            (lambda look: led_by_them(look, role)) if same_lease else (lambda _: ""),
            limit_s=LEASE_S,
        )


def clear(role: str, ours: Ours, seen: Look) -> Iterable[Step]:
    """What the switch had made beside the workload goes; what was there before stays."""
    if role == MANAGER and seen.service is not None and mark(seen.service):
        yield _deleted(seen.service)
    for tree in ours.others[role]:
        ref = ref_of(tree)
        there = seen.found.get(ref)
        if there is None:
            continue
        if shared(applied(tree), there):
            yield Step(role, "leave", str(ref), "was there before")
            continue
        yield _deleted(tree, role)
    yield forget(role)


def _deleted(tree: Tree, role: str = MANAGER) -> Step:
    ref = ref_of(tree)
    return Step(
        role,
        "delete",
        str(ref),
        "came with the switch",
        lambda look: "is still there" if ref in look.found else "",
        lambda _: (Write("delete", ref),),
        (ref,),
    )


def _unregister(made: Tree) -> Step:
    """Else two managers would write the registration of the webhooks against each other."""
    first = made["spec"]["template"]["spec"]["containers"][0]
    args = [
        each.replace("webhook-registration", "-webhook-registration", 1)
        if each.startswith("--controllers=")
        else each
        for each in first["args"]
    ]
    pod = {**made["spec"]["template"]["spec"], "containers": [{**first, "args": args}]}
    tree = {**made, "spec": {**made["spec"], "template": {**made["spec"]["template"], "spec": pod}}}
    write = applied(tree)

    def missing(look: Look) -> str:
        there = look.ours.get(MANAGER)
        if there is None or not replicas(there):
            return ""
        if not is_applied(write, there):
            return "keeps the registration of the webhooks"
        return rolled_out(there, look.our_pods(MANAGER))

    return Step(
        MANAGER,
        "patch",
        f"Deployment {OURS[MANAGER]}",
        "leaves the registration of the webhooks to theirs",
        missing,
        lambda look: () if is_applied(write, look.ours.get(MANAGER)) else (write,),
        limit_s=ROLLOUT_S,
    )


def _begin_theirs(role: str, theirs: Tree, why: str) -> Step:
    ref = workload_ref(theirs)
    wanted = replicas(theirs)

    def missing(look: Look) -> str:
        there = look.theirs.get(role)
        if there is not None and not replicas(there):
            return "has 0 replicas"
        return rolled_out(there, look.their_pods(role))

    def writes(look: Look) -> tuple[Write, ...]:
        there = look.theirs.get(role)
        if there is None:
            return (Write("create", ref, theirs),)
        if replicas(there):
            return ()  # another number is that of an autoscaler or of a person
        return (Write("patch", ref, {"spec": {"replicas": wanted}}),)

    return Step(role, "scale", str(ref), f"to {wanted}: {why}", missing, writes, limit_s=ROLLOUT_S)


def _end_ours(role: str) -> Step:
    ref = workload(role, OURS[role])
    return Step(
        role,
        "delete",
        str(ref),
        "theirs takes over",
        lambda look: (
            "is still there" if role in look.ours else scaled_away(None, look.our_pods(role))
        ),
        lambda look: (Write("delete", ref),) if role in look.ours else (),
        limit_s=END_S,
    )
