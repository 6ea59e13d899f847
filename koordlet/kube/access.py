"""What a part asks of the API server, declared beside the part.

The RBAC rules in `deploy/` are made of these declarations, and a test takes each verb away to see
that it is needed.
"""

from __future__ import annotations

from typing import NamedTuple


class Need(NamedTuple):
    """``resource`` may name a subresource, as in RBAC: ``nodes/status``. ``namespace``: only there;
    empty: everywhere. ``names``: only these objects; empty: all. ``why`` ends "so that ..."."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    namespace: str = ""
    names: tuple[str, ...] = ()
