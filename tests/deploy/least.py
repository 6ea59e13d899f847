"""Whether a role is the least: every verb was asked for, and without it the request would be
refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Sequence

from koordlet.kube.access import Need
from koordlet.kube.client import Client
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from tests.deploy.audited import PREFIX
from tests.fakekube.access import Permit, Request
from tests.realkube.control_plane import ControlPlane
from tools.rbac import Account, Rule, rules

Verb = tuple[str, str, str]
"""(verb, group, resource)."""


def unused(
    made: Collection[Request],
    account: Account,
    needs: Iterable[Need],
    unplayed: Collection[Verb] = (),
) -> list[str]:
    """What the account may do and did not ask for, in words."""
    return [
        f"{account.name}: {verb} {rule.group}/{rule.resource} {' '.join(rule.names)} {namespace}"
        for namespace, found in rules(needs).items()
        for rule in found
        for verb in rule.verbs
        if (verb, rule.group, rule.resource) not in unplayed
        and not any(_fits(each, account, rule, verb, namespace) for each in made)
    ]


async def take_away(
    plane: ControlPlane,
    made: set[Request],
    account: Account,
    played: Sequence[Need],
    unplayed: Collection[Verb] = (),
) -> None:
    """One verb after the other: then what was asked with it is refused, and only that. Of
    ``unplayed`` verbs a request is made up."""
    async with Client(plane.admin, per_second=1e6, burst=1000) as admin:
        for namespace, all_rules in rules(account.needs).items():
            for rule in all_rules:
                for verb in rule.verbs:
                    asked = _asked(made, account, played, unplayed, rule, verb, namespace)
                    if asked is None:
                        continue
                    less = rule._replace(verbs=tuple(set(rule.verbs) - {verb}))
                    left = [less if each is rule else each for each in all_rules]
                    await _grant(admin, account.name, namespace, left)
                    await _until_refused(admin, asked)
            await _grant(admin, account.name, namespace, all_rules)


def _asked(
    made: set[Request],
    account: Account,
    played: Sequence[Need],
    unplayed: Collection[Verb],
    rule: Rule,
    verb: str,
    namespace: str,
) -> Request | None:
    """A request for which this verb is needed; None for parts that are not played here."""
    if (verb, rule.group, rule.resource) in unplayed:
        resource = rule.resource.replace("*", "deployments")
        return Request(account.name, verb, rule.group, resource, "", "", 0)
    if not any(
        (each.group, each.resource, each.namespace) == (rule.group, rule.resource, namespace)
        and verb in each.verbs
        for each in played
    ):
        return None
    return next(each for each in sorted(made) if _fits(each, account, rule, verb, namespace))


async def _grant(admin: Client, name: str, namespace: str, left: Sequence[Rule]) -> None:
    kind = "Role" if namespace else "ClusterRole"
    roles = Kind(
        "rbac.authorization.k8s.io", "v1", kind, f"{kind.lower()}s", bool(namespace), Object
    )
    body = {
        "rules": [
            {
                "apiGroups": [each.group],
                "resources": [each.resource],
                "verbs": list(each.verbs),
                **({"resourceNames": list(each.names)} if each.names else {}),
            }
            for each in left
            if each.verbs
        ]
    }
    await admin.patch(roles, name, body, namespace)


async def _until_refused(admin: Client, asked: Request) -> None:
    """The authorizer sees a changed role a moment later."""
    resource, _, sub = asked.resource.partition("/")
    attributes = {"verb": asked.verb, "group": asked.group, "resource": resource}
    attributes |= {"subresource": sub, "namespace": asked.namespace, "name": asked.name}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": f"{PREFIX}{asked.account}", "resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    for _ in range(600):
        answer = json.loads(await admin._request("POST", path, body=body))
        if not answer["status"]["allowed"]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"still allowed without the verb, so another rule permits it: {asked}")


def _fits(each: Request, account: Account, rule: Rule, verb: str, namespace: str) -> bool:
    permit = Permit(namespace, rule.group, rule.resource, rule.names, (verb,))
    return each.account == account.name and permit.allows(each)
