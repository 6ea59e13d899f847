"""Objects of any kind as trees, for commands that install: read whole, written by one field
manager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from koordlet.kube.answers import tree_of
from koordlet.kube.client import Client
from koordlet.kube.errors import RefusedError, UnusableError
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from koordlet.kube.paging import items

Tree = dict[str, Any]
Verb = Literal["apply", "create", "patch", "delete"]


class Ref(NamedTuple):
    """An object that need not exist."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def of(self) -> Kind[Object]:
        group, _, version = self.api_version.rpartition("/")
        return Kind(group, version, self.kind, _plural(self.kind), bool(self.namespace), Object)


class Write(NamedTuple):
    """``body``: the object to apply or to create, or a merge patch."""

    verb: Verb
    ref: Ref
    body: Mapping[str, Any] = {}


def ref_of(tree: Mapping[str, Any]) -> Ref:
    meta = tree["metadata"]
    return Ref(tree["apiVersion"], tree["kind"], meta["name"], meta.get("namespace", ""))


async def read(client: Client, ref: Ref) -> Tree | None:
    """The object; None where there is none, or the server has no such kind."""
    try:
        return _tree(await client.raw(ref.of.path(ref.namespace, ref.name)))
    except RefusedError as error:
        if error.missing:
            return None
        raise


async def read_list(client: Client, like: Ref, selector: str = "") -> list[Tree]:
    """Objects of the kind of ``like`` in its namespace; ``selector``: of labels."""
    query = {"labelSelector": selector} if selector else {}
    found = items(client, like.of, namespace=like.namespace, query=query)
    try:
        return [_tree(raw) async for raw in found]
    except RefusedError as error:
        if error.missing:
            return []
        raise


async def write(client: Client, each: Write, manager: str) -> None:
    """Send it. A create of what is there, and a delete of what is gone, are done."""
    ref, kind = each.ref, each.ref.of
    head = {"apiVersion": ref.api_version, "kind": ref.kind}
    try:
        match each.verb:
            case "apply":
                await client.apply(
                    kind, ref.name, {**each.body, **head}, ref.namespace, manager=manager
                )
            case "create":
                await client.create(kind, {**each.body, **head}, ref.namespace)
            case "patch":
                await client.patch(kind, ref.name, each.body, ref.namespace)
            case "delete":
                await client.delete(kind, ref.name, ref.namespace)
    except RefusedError as error:
        done = {"create": error.exists, "delete": error.missing}
        if not done.get(each.verb, False):
            raise


def _tree(raw: bytes | msgspec.Raw) -> Tree:
    """Return the object with its managed fields, if it does not nest deeper than anybody reads."""
    try:
        found = msgspec.json.decode(raw)
    except RecursionError:
        return tree_of(raw)
    except msgspec.MsgspecError as error:
        raise UnusableError(f"no object of the Kubernetes API ({error})") from None
    if not isinstance(found, dict):
        raise UnusableError("no object of the Kubernetes API")
    return found


def _plural(kind: str) -> str:
    name = kind.lower()
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"
