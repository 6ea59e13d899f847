"""The companion asks the fake server as the account that its parts have, so that a story with a
request which its role does not permit fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from koord_scheduler.daemon.access import PROCESS, lease, merged
from koord_scheduler.daemon.controller import Part
from koordlet.kube.access import Need
from koordlet.kube.credentials import Cluster, Material
from tests.fakekube.access import Permit
from tests.fakekube.server import RUNNING
from tools.rbac import rules


def needs_of(parts: Sequence[Part]) -> tuple[Need, ...]:
    leases = tuple(lease(each) for each in dict.fromkeys(part.role for part in parts))
    return merged((PROCESS, leases, *(part.needs for part in parts)))


def permits(needs: Iterable[Need]) -> list[Permit]:
    """What `tools/rbac.py` makes of them."""
    return [
        Permit(namespace, each.group, each.resource, each.names, each.verbs)
        for namespace, found in rules(needs).items()
        for each in found
    ]


@contextlib.contextmanager
def as_account(cluster: Cluster, parts: Sequence[Part]) -> Iterator[Cluster]:
    """A real server, and whoever shows a token already, stay as they are."""
    fake = RUNNING.get(cluster.server)
    if fake is None or cluster.token is not None:
        yield cluster
        return
    name = "koord-" + "-".join(dict.fromkeys(part.role for part in parts))
    fake.access.permit(name, permits(needs_of(parts)))
    yield replace(cluster, token=Material(text=name.encode()))
    assert not fake.access.refused()
