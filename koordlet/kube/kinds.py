"""Where the API server has the objects of a kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar
from urllib.parse import quote

from koordlet.kube.objects import Object

T = TypeVar("T", bound=Object)


@dataclass(frozen=True)
class Kind(Generic[T]):
    """``group`` is empty for the core group. ``shape`` is what an object is decoded to.
    ``versions``: those that will do, the best first, where ``version`` is only one of several."""

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool
    shape: type[T]
    versions: tuple[str, ...] = ()

    def another(self) -> Kind[T]:
        """Return the version to try where the server lacks this one; after the last, the first."""
        at = (self.versions.index(self.version) + 1) % len(self.versions)
        return replace(self, version=self.versions[at])

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Of one object, or of all in ``namespace`` (in all namespaces where it is empty).

        Raises ValueError where the namespace of one object is missing, and for names that mean
        another place in a path.
        """
        if {name, namespace} & {".", ".."}:
            raise ValueError(f"{self.name}: no object and no namespace is called . or ..")
        if name and self.namespaced != bool(namespace):
            what = "needs a namespace" if self.namespaced else "has no namespace"
            raise ValueError(f"{self.name} {name!r} {what}")
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/" + "/".join(parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


PODS = Kind("", "v1", "Pod", "pods", True, Object)
"""By what all objects have alone."""
