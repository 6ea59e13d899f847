"""All steps of a switch, what it finds installed, and what forbids it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from koord_scheduler.balance.configuration import make, read_configuration
from koord_scheduler.cli.switching import agents
from koord_scheduler.cli.switching.back import back, clear
from koord_scheduler.cli.switching.carried import (
    Carried,
    carried,
    container,
    file_of,
    lease_of,
)
from koord_scheduler.cli.switching.forward import definitions, forward
from koord_scheduler.cli.switching.look import Look, clients_of, place
from koord_scheduler.cli.switching.names import (
    AGENT,
    APPS,
    DESCHEDULER,
    LEASES,
    NAMESPACE,
    OURS,
    SCHEDULER,
)
from koord_scheduler.cli.switching.objects import Ours, definition_ref
from koord_scheduler.cli.switching.recording import remembered, workload_ref
from koord_scheduler.cli.switching.states import replicas
from koord_scheduler.cli.switching.steps import Step
from koord_scheduler.daemon.files import FileError, parse_documents
from koord_scheduler.daemon.scheduler.setup import SetupError, read_setup
from koord_scheduler.kube.trees import Ref, Tree, ref_of
from koord_scheduler.model.cluster.arguments import ArgumentError

_HELM = "meta.helm.sh/release-name"
_KUBECTL = "kubectl.kubernetes.io/last-applied-configuration"
_KEEPERS = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}
_KEPT = ("slo-controller-config", "koord-scheduler-config", "koord-descheduler-config")


class Plan(NamedTuple):
    """``problems``: why nothing may be done. ``notes``: what people should know."""

    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def wanted(seen: Look, ours: Ours) -> tuple[Ref, ...]:
    """Objects that a plan must have seen beside workloads."""
    configured = (
        file_of(remembered(seen, role))
        for role in (SCHEDULER, DESCHEDULER)
        if remembered(seen, role)
    )
    return (
        *map(definition_ref, ours.definitions),
        *(ref_of(tree) for found in ours.others.values() for tree in found),
        *(each.ref for each in configured if each is not None),
        *(place("ConfigMap", name) for name in _KEPT),
    )


def plan_forward(seen: Look, ours: Ours, roles: Iterable[str], image: str) -> Plan:
    installed = [role for role in APPS.values() if role in roles and role in seen.theirs]
    idle = [role for role in installed if not replicas(remembered(seen, role))]
    chosen = [role for role in installed if role not in idle]
    problems = _forbidden(seen)
    steps: list[Step] = list(definitions(ours, seen)) if chosen else []
    steps += [
        Step("", "leave", f"ConfigMap {name}", "both read it")
        for name in _KEPT
        if place("ConfigMap", name) in seen.found
    ]
    notes = [
        f"{role}: none of theirs is installed, so none of ours is"
        for role in APPS.values()
        if role in roles and role not in seen.theirs
    ]
    notes += [f"{role}: theirs is scaled to 0, so none of ours is installed" for role in idle]
    for role in chosen:
        theirs = seen.theirs[role]
        notes += _installed(theirs)
        found = carried(role, seen)
        notes += [f"{workload_ref(theirs)}: by hand: {each}" for each in found.by_hand]
        if role == AGENT:
            steps += agents.forward(ours, seen, found, image)
            continue
        configuration, wrong = _configuration(role, seen)
        problems += wrong
        same = _same_lease(role, remembered(seen, role), configuration)
        steps += forward(role, ours, seen, found, image, same_lease=same)
    if not installed:
        problems.append(f"no workload with label koord-app in {NAMESPACE}: nothing to switch from")
    return Plan(tuple(steps), tuple(dict.fromkeys(notes)), tuple(problems))


def plan_back(seen: Look, ours: Ours, roles: Iterable[str], image: str) -> Plan:
    steps: list[Step] = []
    notes, problems = [], _forbidden(seen)
    for role in reversed(APPS.values()):
        begun = role in (seen.record or {}) or role in seen.ours
        if role not in roles or not begun:
            continue
        if not remembered(seen, role):
            problems.append(f"{OURS[role]}: nothing says what theirs was like; install it first")
            continue
        if role not in (seen.record or {}):
            notes.append(
                f"{role}: no record of what theirs was like: it becomes what it is now, on all of "
                "its nodes, with one replica where it has none"
            )
        found: Carried = carried(role, seen)
        if role == AGENT:
            steps += agents.back(seen)
        else:
            configuration, _ = _configuration(role, seen)
            same = _same_lease(role, remembered(seen, role), configuration)
            running = container(seen.ours[role])["image"] if role in seen.ours else ""
            steps += back(role, ours, seen, found, image or running, same_lease=same)
        steps += clear(role, ours, seen)
    if not steps and not problems:
        notes.append("nothing of ours is there beside theirs: nothing to go back from")
    return Plan(tuple(steps), tuple(notes), tuple(problems))


def _forbidden(seen: Look) -> list[str]:
    found = [
        f"{each}: ours lives in {NAMESPACE}, where lease and ConfigMap are; move theirs there first"
        for each in seen.elsewhere
    ]
    found += [
        f"{each}: is a second workload of its role, of which one can be switched"
        for each in seen.doubled
    ]
    urls = {str(each["url"]) for each in clients_of(seen) if each.get("url")}
    found += [
        f"webhooks are called at {url}: only those behind a Service can be switched"
        for url in sorted(urls)
    ]
    return found


def _installed(theirs: Tree) -> Iterable[str]:
    meta = theirs["metadata"]
    marks = {**(meta.get("labels") or {}), **(meta.get("annotations") or {})}
    name = workload_ref(theirs)
    by = [
        str(e.get("manager")) for e in meta.get("managedFields") or () if not e.get("subresource")
    ]
    if _HELM in marks:
        release = marks[_HELM]
        yield (
            f"{name}: installed by helm (release {release}): an upgrade begins theirs anew, and an "
            "uninstall removes definitions with all their objects; docs/scheduler/switch.md"
        )
    elif _KUBECTL in marks:
        yield f"{name}: installed by kubectl apply: the same command begins theirs anew"
    elif by:
        yield f"{name}: installed by {', '.join(dict.fromkeys(by))}"
    for key, keeper in _KEEPERS.items():
        if key in marks:
            yield f"{name}: {keeper} keeps it as it is: suspend that before --apply"


def _configuration(role: str, seen: Look) -> tuple[Mapping[str, object], list[str]]:
    """What theirs reads as its configuration, and why ours cannot."""
    file = file_of(remembered(seen, role)) if role in (SCHEDULER, DESCHEDULER) else None
    if file is None:
        return {}, []
    where = f"ConfigMap {file.map}, {file.key}"
    text = ((seen.found.get(file.ref) or {}).get("data") or {}).get(file.key)
    if text is None:
        return {}, [f"{where}: is not there"]
    try:
        documents = parse_documents(where, str(text).encode())
        tree = documents[0] if len(documents) == 1 else None
        if not isinstance(tree, dict):
            return {}, [f"{where}: must be one configuration"]
        if role == SCHEDULER:
            read_setup(where, tree)
        else:
            make(read_configuration(tree))
    except (FileError, SetupError) as error:
        return {}, [str(error)]
    except ArgumentError as error:
        return {}, [f"{where}: {error}"]
    return tree, []


def _same_lease(role: str, theirs: Tree, configuration: Mapping[str, object]) -> bool:
    return lease_of(role, theirs, configuration) == (NAMESPACE, LEASES[role])
