"""``koord-scheduler mutations explain``: what admission would make of a pod, and why."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from koord_scheduler.admission.pod_mutation import Facts, Mutation, mutate_pod
from koord_scheduler.admission.pod_validation import validate_pod
from koord_scheduler.admission.pods import name_of, priority_class_of, qos_of
from koord_scheduler.admission.profiles import PriorityClassValue, Profile, percent_of
from koord_scheduler.admission.quotas import Quota, QuotaProfile, Quotas
from koord_scheduler.admission.words import AdmissionError, Gates, Tree, gates_from
from koord_scheduler.cli.cluster import cluster_of
from koord_scheduler.cli.errors import BadInputError, WrongUseError
from koord_scheduler.cli.output import clean, columns, emit
from koord_scheduler.cli.seen import read_documents
from koord_scheduler.kube.quota_shapes import (
    QUOTA_PROFILES,
    QUOTAS,
    ElasticQuota,
    quota_of,
    quota_profile_of,
)
from koord_scheduler.webhook.kinds import (
    NAMESPACES,
    PRIORITY_CLASSES,
    PROFILES,
)
from koordlet.kube.answers import decoded
from koordlet.kube.client import Client
from koordlet.kube.errors import RefusedError, UnusableError
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from koordlet.kube.paging import items

T = TypeVar("T", bound=Object)
_SHIPPED = {
    "koord-prod": 9000,
    "koord-mid": 7000,
    "koord-batch": 5000,
    "koord-free": 3000,
}
"""PriorityClasses of the deployment, for files that do not have them."""


class Known(NamedTuple):
    """Of the cluster, or of files. ``namespaces``: name -> labels."""

    profiles: tuple[Profile, ...]
    namespaces: Mapping[str, Mapping[str, str]]
    priority_classes: Mapping[str, PriorityClassValue]
    quotas: Quotas
    quota_profiles: tuple[QuotaProfile, ...]


class Explained(NamedTuple):
    """``refusal``: why the pod would not be admitted; empty where it would."""

    namespace: str
    name: str
    mutation: Mutation | None
    refusal: str


def main(args: argparse.Namespace) -> int:
    if not args.files:
        raise WrongUseError("give -f FILE with a pod, or with a workload that makes pods")
    try:
        gates = gates_from(args.feature_gates)
    except ValueError as error:
        raise WrongUseError(f"--feature-gates: {error}") from None
    pods = [
        pod
        for path in args.files
        for document in read_documents(path)
        for pod in pods_of(document, path)
    ]
    if not pods:
        raise BadInputError(f"{', '.join(args.files)}: no pod, and nothing that makes pods")
    for pod in pods:
        pod["metadata"].setdefault("namespace", args.namespace or "default")
    offline = bool(args.profiles)
    known = from_files(args.profiles) if offline else asyncio.run(_from_cluster(args, pods))
    found = [explained(pod, known, gates) for pod in pods]
    emit([_tree(each) for each in found], args.output, lambda: _all_lines(found, pods))
    return 1 if any(each.refusal for each in found) else 0


def pods_of(document: Any, where: str) -> list[Tree]:
    """The pod that a document is, or that a Deployment, a Job ... makes. Raises BadInputError."""
    if not isinstance(document, dict):
        return []
    if document.get("kind") == "List":
        return [pod for each in document.get("items") or () for pod in pods_of(each, where)]
    if document.get("kind") == "Pod":
        found: Any = dict(document)
    else:
        spec = document.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("jobTemplate"), dict):
            spec = spec["jobTemplate"].get("spec")
        template = spec.get("template") if isinstance(spec, dict) else None
        if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
            return []
        owner = document.get("metadata")
        meta = dict(template.get("metadata") or {})
        if isinstance(owner, dict):
            meta.setdefault("generateName", f"{owner.get('name', '')}-")
            if "namespace" in owner:
                meta.setdefault("namespace", owner["namespace"])
        found = {"kind": "Pod", "metadata": meta, "spec": template["spec"]}
    if not isinstance(found.get("metadata"), dict) or not isinstance(found.get("spec"), dict):
        raise BadInputError(f"{where}: a pod has metadata and spec")
    return [found]


def explained(pod: Tree, known: Known, gates: Gates) -> Explained:
    """Profiles with a probability count as drawn, unless it is 0."""
    namespace, name = str(pod["metadata"]["namespace"]), name_of(pod)
    facts = Facts(
        known.profiles,
        known.namespaces.get(namespace, {}),
        known.priority_classes,
        known.quotas,
        known.quota_profiles,
    )
    mutation = None
    try:
        mutation = mutate_pod(pod, namespace, facts, gates, lambda: 0.0)
        validate_pod(mutation.pod, None, namespace, known.quotas, gates)
    except AdmissionError as error:
        return Explained(namespace, name, mutation, error.message)
    return Explained(namespace, name, mutation, "")


def from_files(paths: Iterable[str]) -> Known:
    """Raises BadInputError."""
    found: dict[str, list[Any]] = {}
    kinds: tuple[Kind[Any], ...] = (
        PROFILES,
        NAMESPACES,
        PRIORITY_CLASSES,
        QUOTAS,
        QUOTA_PROFILES,
    )
    by_name = {kind.name: kind for kind in kinds}
    for path in paths:
        for document in read_documents(path):
            for each in _items(document):
                kind = by_name.get(str(each.get("kind")))
                if kind is None:
                    continue
                try:
                    made = msgspec.convert(each, kind.shape)
                except msgspec.ValidationError as error:
                    raise BadInputError(f"{path}: {kind.name}: {error}") from None
                found.setdefault(kind.name, []).append(made)
    classes = {name: PriorityClassValue(value) for name, value in _SHIPPED.items()}
    classes |= {e.metadata.name: e.facts for e in found.get(PRIORITY_CLASSES.name, ())}
    return Known(
        tuple(each.profile for each in found.get(PROFILES.name, ())),
        {e.metadata.name: e.metadata.labels for e in found.get(NAMESPACES.name, ())},
        classes,
        Quotas(tuple(_quotas(found.get(QUOTAS.name, ())))),
        tuple(map(quota_profile_of, found.get(QUOTA_PROFILES.name, ()))),
    )


def _items(document: Any) -> list[Any]:
    if not isinstance(document, dict):
        return []
    if document.get("kind") == "List":
        return [each for each in document.get("items") or () if isinstance(each, dict)]
    return [document]


async def _from_cluster(args: argparse.Namespace, pods: list[Tree]) -> Known:
    async with Client(cluster_of(args), agent="koord-scheduler") as client:
        names = {str(each["metadata"]["namespace"]) for each in pods}
        namespaces: dict[str, Mapping[str, str]] = {}
        for name in sorted(names):
            try:
                namespaces[name] = (await client.get(NAMESPACES, name)).metadata.labels
            except RefusedError as error:
                if not error.missing:
                    raise
                print(f"koord-scheduler: there is no namespace {clean(name)}", file=sys.stderr)
        return Known(
            tuple(each.profile for each in await _all(client, PROFILES)),
            namespaces,
            {e.metadata.name: e.facts for e in await _all(client, PRIORITY_CLASSES)},
            Quotas(tuple(_quotas(await _all(client, QUOTAS)))),
            tuple(map(quota_profile_of, await _all(client, QUOTA_PROFILES))),
        )


async def _all(client: Client, kind: Kind[T]) -> list[T]:
    """None where the cluster does not have the kind."""
    found: list[T] = []
    try:
        async for raw in items(client, kind):
            try:
                found.append(decoded(kind, raw))
            except UnusableError as error:
                print(f"koord-scheduler: passed over: {clean(str(error))}", file=sys.stderr)
    except RefusedError as error:
        if not error.missing:
            raise
    return found


def _quotas(objects: Iterable[ElasticQuota]) -> Iterable[Quota]:
    for each in objects:
        try:
            yield quota_of(each)
        except AdmissionError as error:
            name = clean(each.metadata.name)
            print(f"koord-scheduler: quota {name} passed over: {error.message}", file=sys.stderr)


def _tree(each: Explained) -> dict[str, Any]:
    made = each.mutation
    return {
        "namespace": each.namespace,
        "name": each.name,
        "admitted": not each.refusal,
        "refusal": each.refusal,
        "profiles": [
            {"name": match.profile.name, "matches": not match.why, "why": match.why}
            for match in (made.matches if made else ())
        ],
        "changes": [step._asdict() for step in (made.steps if made else ())],
        "pod": made.pod if made else None,
    }


def _all_lines(found: list[Explained], pods: list[Tree]) -> list[str]:
    lines: list[str] = []
    for each, pod in zip(found, pods, strict=True):
        lines += [*([""] if lines else []), *_lines(each, pod)]
    return lines


def _lines(each: Explained, pod: Tree) -> list[str]:
    lines = [f"pod {clean(each.namespace)}/{clean(each.name)}"]
    made = each.mutation
    if made is not None:
        if made.matches:
            rows = [_match(match.profile, match.why) for match in made.matches]
            lines += ["", *columns(("PROFILE", "APPLIES", "WHY"), rows)]
        else:
            lines += ["", "there is no profile"]
        if made.steps:
            changes = [(s.by, s.where, s.before or "", s.after or "") for s in made.steps]
            lines += ["", *columns(("BY", "CHANGES", "FROM", "TO"), changes)]
        else:
            lines += ["", "nothing changes"]
        lines += ["", f"class before: {_classes(pod)}", f"class after:  {_classes(made.pod)}"]
    lines += ["", f"refused: {clean(each.refusal)}" if each.refusal else "admitted"]
    return lines


def _match(profile: Profile, why: str) -> tuple[str, str, str]:
    if why:
        return profile.name, "no", why
    percent = percent_of(profile)
    return profile.name, "yes" if percent == 100 else f"{percent} %", "both selectors match"


def _classes(pod: Tree) -> str:
    return f"{qos_of(pod)}, {priority_class_of(pod) or 'no priority class'}"
