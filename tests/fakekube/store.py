"""Objects with versions, and the log of changes that watches read."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fakekube.answers import ApiError, conflict, exists, expired, immutable, invalid, missing
from tests.fakekube.crd import Schema
from tests.fakekube.resources import Resource
from tests.fakekube.selectors import Selector

Name = tuple[str, str]
Tree = dict[str, Any]


@dataclass(frozen=True)
class Logged:
    """One change. ``before`` None: the object was made; ``gone``: it was deleted."""

    version: int
    resource: Resource
    before: Tree | None
    after: Tree
    gone: bool = False


@dataclass
class Store:
    """``now`` gives timestamps of the API. Everything returned is a copy."""

    now: Callable[[], str]
    version: int = 0
    compacted: int = 0
    """Changes up to this version are forgotten: who asks for what came after them gets 410."""
    log: list[Logged] = field(default_factory=list)
    schemas: dict[Resource, Schema] = field(default_factory=dict)
    on_write: Callable[[], None] = lambda: None
    _objects: dict[Resource, dict[Name, Tree]] = field(default_factory=dict)
    _pages: dict[str, tuple[int, list[Tree]]] = field(default_factory=dict)

    def get(self, resource: Resource, name: Name) -> Tree:
        found = self._objects.get(resource, {}).get(name)
        if found is None:
            raise missing(resource, name[1])
        return copied(found)

    def all(self, resource: Resource, namespace: str, selector: Selector) -> list[Tree]:
        found = self._objects.get(resource, {})
        return [
            copied(found[name])
            for name in sorted(found)
            if namespace in ("", name[0]) and selector.matches(found[name])
        ]

    def page(
        self, resource: Resource, namespace: str, selector: Selector, limit: int, token: str
    ) -> Tree:
        """Of a list as it was when its first page was asked for."""
        if token:
            if token not in self._pages:
                raise expired("The provided continue parameter is too old")
            version, left = self._pages.pop(token)
        else:
            version, left = self.version, self.all(resource, namespace, selector)
        items, rest = (left[:limit], left[limit:]) if limit else (left, [])
        meta: Tree = {"resourceVersion": str(version)}
        if rest:
            meta["continue"] = uuid.uuid4().hex
            meta["remainingItemCount"] = len(rest)
            self._pages[meta["continue"]] = (version, rest)
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": meta,
            "items": items,
        }

    def create(self, resource: Resource, namespace: str, body: Tree) -> Tree:
        made = self._admitted(resource, copied(body))
        meta = made.setdefault("metadata", {})
        if resource.namespaced and meta.setdefault("namespace", namespace) != namespace:
            raise ApiError(400, "BadRequest", "the namespace of the object is another one")
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + uuid.uuid4().hex[:5]
        if not meta.get("name"):
            raise invalid(resource, "", "metadata.name: Required value: name is required")
        if meta.get("resourceVersion"):
            raise ApiError(
                400, "BadRequest", "resourceVersion should not be set on objects to be created"
            )
        name = (namespace if resource.namespaced else "", meta["name"])
        if name in self._objects.get(resource, {}):
            raise exists(resource, name[1])
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = self.now()
        meta["generation"] = 1
        if resource.status and resource in self.schemas:
            made.pop("status", None)
        return self._put(resource, name, None, made)

    def replace(self, resource: Resource, name: Name, body: Tree, subresource: str = "") -> Tree:
        old = self.get(resource, name)
        asked = body.get("metadata", {}).get("resourceVersion")
        if not asked and not resource.unconditional:
            text = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
            raise invalid(resource, name[1], text)
        return self._update(resource, name, old, body, subresource)

    def merge(
        self,
        resource: Resource,
        name: Name,
        patch: Tree,
        subresource: str = "",
        *,
        strategic: bool = False,
    ) -> Tree:
        """RFC 7386; ``strategic``: of lists, conditions are merged by their type."""
        old = self.get(resource, name)
        new = merged(old, patch, by_type=strategic)
        if resource in self.schemas and subresource == "status":
            # Nobody looks at the uid here; the version alone tells objects apart.
            new["metadata"]["uid"] = old["metadata"]["uid"]
        elif new["metadata"].get("uid") != old["metadata"]["uid"]:
            raise immutable(resource, name[1], "metadata.uid")
        return self._update(resource, name, old, new, subresource)

    def delete(self, resource: Resource, name: Name, preconditions: Mapping[str, str]) -> Tree:
        old = self.get(resource, name)
        for key, value in preconditions.items():
            if old["metadata"].get(key) != value:
                raise conflict(
                    resource, name[1], f"the {key} in the precondition ({value}) differs"
                )
        if old["metadata"].get("finalizers"):
            return self.merge(resource, name, {"metadata": {"deletionTimestamp": self.now()}})
        del self._objects[resource][name]
        return self._log(resource, old, old, gone=True)

    def compact(self) -> None:
        """Forgets all changes, as etcd does after some minutes."""
        self.compacted = self.version
        self.log.clear()
        self._pages.clear()

    def since(self, version: int) -> Iterator[Logged]:
        if version < self.compacted:
            raise expired(f"too old resource version: {version} ({self.compacted})")
        # Each change has the next version, and a thousand watches ask at every change.
        return iter(self.log[version - self.compacted :])

    def _update(
        self, resource: Resource, name: Name, old: Tree, body: Tree, subresource: str
    ) -> Tree:
        new = self._admitted(resource, copied(body))
        meta, before = new.setdefault("metadata", {}), old["metadata"]
        for key in ("uid", "resourceVersion"):
            if meta.get(key) not in (None, "", before[key]):
                raise conflict(
                    resource,
                    name[1],
                    "the object has been modified; please apply your changes to the latest version"
                    " and try again",
                )
        if subresource == "status":
            new = {**old, "metadata": {**meta}, "status": new.get("status", {})}
            if resource in self.schemas:
                new["metadata"] = dict(before)
        elif resource.status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        for key in ("name", "namespace", "uid", "creationTimestamp", "generation"):
            if key in before:
                new["metadata"][key] = before[key]
        new["metadata"]["resourceVersion"] = before["resourceVersion"]
        if new == old:
            return old
        if _desired(new) != _desired(old):
            new["metadata"]["generation"] = before.get("generation", 1) + 1
        return self._put(resource, name, old, new)

    def _admitted(self, resource: Resource, body: Tree) -> Tree:
        """As the server keeps it: without fields that the schema does not know. Raises ApiError."""
        body["kind"], body["apiVersion"] = resource.kind, resource.api_version
        body.get("metadata", {}).pop("managedFields", None)
        schema = self.schemas.get(resource)
        if schema is None:
            return body
        kept, problems = schema.admit(body)
        if problems:
            name = body.get("metadata", {}).get("name", "")
            raise invalid(resource, name, "; ".join(problems))
        return kept

    def _put(self, resource: Resource, name: Name, old: Tree | None, new: Tree) -> Tree:
        self._objects.setdefault(resource, {})[name] = new
        return self._log(resource, old, new)

    def _log(self, resource: Resource, old: Tree | None, new: Tree, gone: bool = False) -> Tree:
        self.version += 1
        new = copied(new)
        new["metadata"]["resourceVersion"] = str(self.version)
        if not gone:
            meta = new["metadata"]
            self._objects[resource][(meta.get("namespace", ""), meta["name"])] = new
        self.log.append(Logged(self.version, resource, old, new, gone))
        self.on_write()
        return copied(new)


def copied(tree: Any) -> Any:
    """Of JSON: several times faster than `copy.deepcopy`, which thousands of histories feel."""
    if isinstance(tree, dict):
        return {key: copied(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [copied(each) for each in tree]
    return tree


def merged(tree: Any, patch: Any, *, by_type: bool = False) -> Any:
    if not isinstance(patch, dict):
        return patch
    base = dict(tree) if isinstance(tree, dict) else {}
    for key, value in patch.items():
        if value is None:
            base.pop(key, None)
        elif by_type and key == "conditions":
            found = {each["type"]: each for each in base.get(key, [])}
            for each in value:
                found[each["type"]] = merged(found.get(each["type"]), each)
            base[key] = list(found.values())
        else:
            base[key] = merged(base.get(key), value, by_type=by_type)
    return base


def _desired(tree: Tree) -> Tree:
    return {key: value for key, value in tree.items() if key not in ("metadata", "status")}
