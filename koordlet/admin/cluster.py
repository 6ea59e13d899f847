"""The node as a member of a cluster, for `koordlet status`. Times are unix seconds."""

from __future__ import annotations

import msgspec

NODE_SLO_DEFINITION = "definition of NodeSLO"


class ClusterObjectView(msgspec.Struct, frozen=True, kw_only=True):
    """What the daemon reads of the cluster, and tells it. ``name``: of one object, how many there
    are, or what was told. ``state``: ``watched``, ``asked``, ``last known``, ``missing``,
    ``deleted`` or ``reported``. ``age_s``: since the server last said that it is so, or was told; 0
    while it is watched, None: never."""

    kind: str
    name: str
    state: str
    age_s: float | None = None
    error: str = ""


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """``server``: empty until credentials were found. ``connected``: whether the API server is
    heard. ``writes``: requests that change something, since the start."""

    enabled: bool = False
    server: str = ""
    node: str = ""
    connected: bool = False
    error: str = ""
    writes: int = 0
    objects: tuple[ClusterObjectView, ...] = ()
