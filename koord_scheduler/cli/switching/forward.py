"""The steps from theirs to ours, of the roles that have a lease."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from koord_scheduler.cli.switching.carried import NO_WEBHOOKS, Carried, container, with_carried
from koord_scheduler.cli.switching.look import APP_OF, Look, place, service_of
from koord_scheduler.cli.switching.names import (
    APPLIED,
    CERTIFICATES,
    MANAGER,
    OUR_LABEL,
    OURS,
)
from koord_scheduler.cli.switching.objects import (
    Ours,
    applied,
    definition_ref,
    definition_writes,
    established,
    is_applied,
    serves,
    shared,
)
from koord_scheduler.cli.switching.recording import remember, workload_ref
from koord_scheduler.cli.switching.states import (
    answered_by,
    leads,
    replicas,
    rolled_out,
    scaled_away,
    selector_of,
)
from koord_scheduler.cli.switching.steps import Step
from koord_scheduler.kube.trees import Tree, Write

ROLLOUT_S, END_S, LEASE_S = 300.0, 120.0, 60.0
_KEYS = {
    "ca.crt": "ca-cert.pem",
    "ca.key": "ca-key.pem",
    "tls.crt": "cert.pem",
    "tls.key": "key.pem",
}
"""Our key of the Secret to theirs."""


def definitions(ours: Ours, seen: Look) -> Iterable[Step]:
    for name, tree in ours.definitions.items():
        ref = definition_ref(name)
        there = seen.found.get(ref)
        if there is not None and serves(name, there):
            stored = ", ".join((there.get("status") or {}).get("storedVersions") or ())
            why = f"serves what ours asks for{f'; objects are stored as {stored}' * bool(stored)}"
            yield Step("", "leave", str(ref), why)
            continue

        def missing(look: Look, name: str = name) -> str:
            found = look.found.get(definition_ref(name))
            if found is None:
                return "is not there"
            if not serves(name, found):
                return "does not serve the version that ours asks for"
            return "" if established(found) else "is not established yet"

        def writes(look: Look, name: str = name, tree: Tree = tree) -> tuple[Write, ...]:
            return definition_writes(name, tree, look.found.get(definition_ref(name)))

        verb, why = ("create", "theirs has none; stays when you go back")
        if there is not None:
            verb, why = "patch", "a version more; the one in store stays"
        yield Step("", verb, str(ref), why, missing, writes, (ref,))  # type: ignore[arg-type]


def beside(role: str, ours: Ours, seen: Look) -> Iterable[Step]:
    """Accounts, rights, Services and configuration of ours."""
    for tree in ours.others[role]:
        write = applied(tree)
        ref = write.ref
        if shared(write, seen.found.get(ref)):
            yield Step(role, "leave", str(ref), "is there, and serves both")
            continue

        def missing(look: Look, write: Write = write) -> str:
            there = look.found.get(write.ref)
            if is_applied(write, there) or shared(write, there):
                return ""
            return "is not there" if there is None else "is of an earlier switch"

        yield Step(
            role,
            "create",
            str(ref),
            "beside theirs",
            missing,
            lambda _, write=write: (write,),  # type: ignore[misc]
            (ref,),
        )


def forward(
    role: str, ours: Ours, seen: Look, found: Carried, image: str, *, same_lease: bool
) -> Iterable[Step]:
    theirs = seen.theirs[role]
    yield remember(role)
    yield from beside(role, ours, seen)
    if role == MANAGER:
        yield _certificate()
    made = with_carried(ours.workloads[role], found, image)
    admits = role == MANAGER and NO_WEBHOOKS not in found.args
    if same_lease:
        yield install(role, made, "waits for the lease; theirs still leads")
        if admits:
            yield serve_webhooks(service_of(seen))
        yield end_theirs(role, theirs, "ours is ready and takes the lease")
    else:
        none = {**made, "spec": {**made["spec"], "replicas": 0}}
        if replicas(theirs) or role not in seen.ours:
            yield install(role, none, "theirs takes another lease: both must not run at once")
        yield end_theirs(role, theirs, "theirs takes another lease: it ends before ours begins")
        yield install(role, made, "theirs has ended")
        if admits:
            yield serve_webhooks(service_of(seen))
    yield Step(
        role,
        "wait",
        f"Lease of {APP_OF[role]}",
        "ours leads",
        lambda look: leads(look, role),
        limit_s=LEASE_S,
    )


def install(role: str, made: Tree, why: str) -> Step:
    write = applied(made)

    def missing(look: Look) -> str:
        there = look.ours.get(role)
        if not is_applied(write, there):
            return "is not there yet" if there is None else "is of an earlier switch"
        return rolled_out(there, look.our_pods(role))

    image = container(made)["image"]
    return Step(
        role,
        "create",
        f"{made['kind']} {OURS[role]}",
        f"{why} (image {image})",
        missing,
        lambda look: () if is_applied(write, look.ours.get(role)) else (write,),
        limit_s=ROLLOUT_S,
    )


def end_theirs(role: str, theirs: Tree, why: str) -> Step:
    ref = workload_ref(theirs)

    def writes(look: Look) -> tuple[Write, ...]:
        there = look.theirs.get(role)
        if there is None or not replicas(there):
            return ()
        return (Write("patch", ref, {"spec": {"replicas": 0}}),)

    return Step(
        role,
        "scale",
        str(ref),
        f"to 0: {why}",
        lambda look: scaled_away(look.theirs.get(role), look.their_pods(role)),
        writes,
        limit_s=END_S,
    )


def serve_webhooks(service: str) -> Step:
    """Both show certificates of the same authority, so no request meets one it does not trust."""
    return point_webhooks(
        service,
        "ours answers with the certificate that theirs has",
        selector_of(APP_OF[MANAGER], OUR_LABEL),
        lambda look: look.our_pods(MANAGER),
    )


def point_webhooks(
    service: str,
    why: str,
    selector: dict[str, str | None],
    pods: Callable[[Look], Iterable[Tree]],
) -> Step:
    ref = place("Service", service)

    def points(look: Look) -> bool:
        there = ((look.service or {}).get("spec") or {}).get("selector") or {}
        return all(there.get(key) == value for key, value in selector.items())

    def missing(look: Look) -> str:
        if look.service is None:
            return "is not there"
        return answered_by(look, pods(look)) if points(look) else "selects the pods of the other"

    def writes(look: Look) -> tuple[Write, ...]:
        if look.service is None:
            kept = {key: value for key, value in selector.items() if value is not None}
            ports = [{"name": "webhook", "port": 443, "targetPort": 9876}]
            marked = {APPLIED: "by the switch"}
            meta = {"name": ref.name, "namespace": ref.namespace, "annotations": marked}
            body = {"metadata": meta, "spec": {"selector": kept, "ports": ports}}
            return (Write("create", ref, body),)
        if points(look):
            return ()
        return (Write("patch", ref, {"spec": {"selector": selector}}),)

    return Step(MANAGER, "patch", str(ref), why, missing, writes, limit_s=END_S)


def _certificate() -> Step:
    """Under the keys that we read, before our first process asks for it."""
    ref = place("Secret", CERTIFICATES)

    def lacks(look: Look) -> dict[str, str]:
        data = (look.secret or {}).get("data") or {}
        return {
            ours: data[theirs]
            for ours, theirs in _KEYS.items()
            if data.get(theirs) and not data.get(ours)
        }

    return Step(
        MANAGER,
        "patch",
        str(ref),
        "the authority of theirs signs for ours too; its own keys stay",
        lambda look: f"lacks {', '.join(lacks(look))}" if lacks(look) else "",
        lambda look: (Write("patch", ref, {"data": lacks(look)}),) if lacks(look) else (),
    )
