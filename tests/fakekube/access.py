"""Who may do what on the fake server: rules of RBAC, by bearer token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from aiohttp import web

from tests.fakekube.answers import ApiError

_BEARER = "Bearer "
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Request(NamedTuple):
    """One that was made. ``code``: of the answer. ``name`` is empty for lists and creations; of a
    watch or list of one object by a field selector it is that one's, as RBAC sees it."""

    account: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    code: int


class Permit(NamedTuple):
    """``namespace`` empty: everywhere. ``names`` empty: all objects."""

    namespace: str
    group: str
    resource: str
    names: tuple[str, ...]
    verbs: tuple[str, ...]

    def allows(self, asked: Request) -> bool:
        whole, _, sub = asked.resource.partition("/")
        return (
            asked.verb in self.verbs
            and asked.group == self.group
            and self.resource in (asked.resource, f"*/{sub}" if sub else whole)
            and self.namespace in ("", asked.namespace)
            and (not self.names or asked.name in self.names)
        )


class Access:
    """Whoever shows the token of an account may do what that is permitted; all others may do
    everything. ``asked``: what accounts asked, each once; ``code`` is 200 or 403."""

    def __init__(self) -> None:
        self.asked: set[Request] = set()
        self._permits: dict[str, tuple[Permit, ...]] = {}

    def permit(self, account: str, permits: Iterable[Permit]) -> None:
        """``account`` is its token too."""
        self._permits[account] = tuple(permits)

    def refused(self) -> list[Request]:
        return sorted(each for each in self.asked if each.code == 403)

    def admit(self, request: web.Request) -> None:
        """Raises ApiError."""
        account = request.headers.get("Authorization", "").removeprefix(_BEARER)
        permits = self._permits.get(account)
        asked = _asked(account, request) if permits is not None else None
        if permits is None or asked is None:
            return
        allowed = any(each.allows(asked) for each in permits)
        self.asked.add(asked._replace(code=200 if allowed else 403))
        if not allowed:
            text = f"{account} cannot {asked.verb} {asked.resource} in {asked.namespace!r}"
            raise ApiError(403, "Forbidden", text)


def _asked(account: str, request: web.Request) -> Request | None:
    """None where it is about no resource: discovery, health."""
    root, *parts = request.path.strip("/").split("/")
    group = parts.pop(0) if root == "apis" and parts else ""
    if root not in ("api", "apis") or len(parts) < 2:
        return None
    parts = parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, sub = (*parts, "", "")[:3]
    selector = request.query.get("fieldSelector", "")
    if not name and selector.startswith("metadata.name="):
        name = selector.removeprefix("metadata.name=")
    verb = _VERBS.get(request.method, "get" if len(parts) > 1 else "list")
    if request.query.get("watch") in ("1", "true"):
        verb = "watch"
    return Request(account, verb, group, f"{plural}/{sub}" if sub else plural, namespace, name, 0)
