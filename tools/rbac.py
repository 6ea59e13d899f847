"""Writes ``deploy/*/rbac.yaml``: service accounts, roles and bindings, from what the parts declare
that they ask of the API server (`koordlet/kube/access.py`). Of the parts of a role those count that
its Deployment switches on. With ``--check``, fails where a file differs."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from koord_scheduler.cli.main import build_parser
from koord_scheduler.daemon.access import PROCESS, lease, merged
from koord_scheduler.daemon.parts import ROLES, chosen
from koordlet.cluster.access import NEEDS as NODE_NEEDS
from koordlet.kube.access import Need

DEPLOY = Path(__file__).parent.parent / "deploy"
NAMESPACE = "koordinator-system"
_HEAD = "# Written by tools/rbac.py from what the parts declare; `make deploy` writes it anew.\n"
_UNNAMED = frozenset(("create", "deletecollection"))
"""Verbs of requests that name no object: a rule with names never permits them."""


class Account(NamedTuple):
    name: str
    path: str
    needs: tuple[Need, ...]


def needs_of(role: str) -> tuple[Need, ...]:
    """Of what the Deployment of a role runs."""
    tree = yaml.safe_load((DEPLOY / role / "deployment.yaml").read_text())
    (container,) = tree["spec"]["template"]["spec"]["containers"]
    args = build_parser().parse_args(container["args"])
    parts = chosen(args.roles.split(","), args.controllers.split(","))
    leases = tuple(lease(each) for each in dict.fromkeys(part.role for part in parts))
    return merged((PROCESS, leases, *(part.needs for part in parts)))


ACCOUNTS = (
    Account("koordlet", "koordlet/rbac.yaml", tuple(NODE_NEEDS)),
    *(Account(f"koord-{role}", f"{role}/rbac.yaml", needs_of(role)) for role in ROLES),
)


class Rule(NamedTuple):
    """One rule of a role; ``whys``: each reason once."""

    group: str
    resource: str
    names: tuple[str, ...]
    verbs: tuple[str, ...]
    whys: tuple[str, ...]


def rules(needs: Iterable[Need]) -> dict[str, tuple[Rule, ...]]:
    """By namespace, empty = everywhere. Needs of the same objects become one rule, and none permits
    what a rule for more objects does."""
    found: dict[tuple[str, str, str, tuple[str, ...]], tuple[dict[str, None], dict[str, None]]] = {}
    for need in needs:
        for names, verbs in _parts(need):
            where = (need.namespace, need.group, need.resource, names)
            kept = found.setdefault(where, ({}, {}))
            kept[0].update(dict.fromkeys(verbs))
            kept[1][need.why] = None
    sorted_rules: dict[str, list[Rule]] = {}
    for (namespace, group, resource, names), (verbs_kept, whys) in sorted(found.items()):
        # What a wider rule permits already is not permitted again.
        wider: set[tuple[str, str, str, tuple[str, ...]]]
        wider = {(where, group, resource, ()) for where in ("", namespace)}
        wider.discard((namespace, group, resource, names))
        wider |= {("", group, resource, names)} if namespace else set()
        had = {verb for key in wider if key in found for verb in found[key][0]}
        if left := tuple(sorted(set(verbs_kept) - had)):
            rule = Rule(group, resource, names, left, tuple(whys))
            sorted_rules.setdefault(namespace, []).append(rule)
    return {namespace: tuple(each) for namespace, each in sorted_rules.items()}


def _parts(need: Need) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """(names, verbs): what may be limited to names, and what may not."""
    if not need.names:
        yield (), need.verbs
        return
    named = tuple(verb for verb in need.verbs if verb not in _UNNAMED)
    unnamed = tuple(verb for verb in need.verbs if verb in _UNNAMED)
    if named:
        yield need.names, named
    if unnamed:
        yield (), unnamed


def text(account: Account) -> str:
    """The file of one account."""
    parts = [f"apiVersion: v1\nkind: ServiceAccount\n{_metadata(account.name, NAMESPACE)}"]
    for namespace, found in rules(account.needs).items():
        kind = "Role" if namespace else "ClusterRole"
        head = f"apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}"
        # An account has at most one role in each namespace, so its name does for all of them.
        named = _metadata(account.name, namespace)
        parts.append(f"{head}\n{named}rules:\n" + "".join(map(_rule, found)))
        parts.append(
            f"{head}Binding\n{named}"
            "roleRef:\n"
            f"  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {account.name}\n"
            "subjects:\n"
            f"  - kind: ServiceAccount\n    name: {account.name}\n    namespace: {NAMESPACE}\n"
        )
    return _HEAD + "---\n".join(parts)


def _metadata(name: str, namespace: str) -> str:
    return f"metadata:\n  name: {name}\n" + (f"  namespace: {namespace}\n" if namespace else "")


def _rule(rule: Rule) -> str:
    lines = []
    for why in rule.whys:
        sentence = f"# {why[:1].upper()}{why[1:]}."
        lines += textwrap.wrap(sentence, 98, initial_indent="  ", subsequent_indent="  # ")
    lines.append(f'  - apiGroups: ["{rule.group}"]')
    # A star that begins a word is an alias in YAML.
    resource = f'"{rule.resource}"' if rule.resource.startswith("*") else rule.resource
    lines.append(f"    resources: [{resource}]")
    if rule.names:
        lines.append(f"    resourceNames: [{', '.join(rule.names)}]")
    lines.append(f"    verbs: [{', '.join(rule.verbs)}]")
    return "\n".join(lines) + "\n"


def main() -> int:
    differing = []
    for account in ACCOUNTS:
        path = DEPLOY / account.path
        if "--check" not in sys.argv:
            path.write_text(text(account))
        elif not path.exists() or path.read_text() != text(account):
            differing.append(path)
    for path in differing:
        print(f"{path}: differs from what the parts declare; run make deploy", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
