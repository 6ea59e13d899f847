"""Evictions through the API server, which asks the disruption budgets
(docs/reference/qos.md 4.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum

from koordlet.actuator.evict.journal import Begun
from koordlet.actuator.evict.ways import Attempt, Progress
from koordlet.decision.plan import VictimKind
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError

NO_CLUSTER = "no cluster configured"
ANSWER_S = 3.0
"""So long the API server is waited for. Whoever is evicted takes memory or CPU from others now."""
ITSELF = "the node acts by itself"


class Mode(StrEnum):
    """``API_FIRST``: the API server is asked, and where it does not evict the pod, for a disruption
    budget or any other reason, the node stops it, as the reference does by default. ``ONLY_API``:
    where it refuses, the pod stays and another one goes; the node acts by itself only while the
    API server does not answer. ``NODE``: it is never asked."""

    API_FIRST = "api-first"
    ONLY_API = "only-api"
    NODE = "node"


Evict = Callable[[str, str, str], Awaitable[None]]
"""Namespace, name and uid of a pod. Raises KubeError and CredentialsError."""


class EvictionApi:
    """A way to end a pod. It takes nobody before ``connect``."""

    name = "Kubernetes eviction API"

    def __init__(self) -> None:
        self._evict: Evict | None = None
        self._mode = Mode.NODE
        self._away: Callable[[], str] = str
        self._running: set[asyncio.Task[None]] = set()

    def connect(self, evict: Evict, mode: Mode, away: Callable[[], str]) -> None:
        """``away``: why the API server is not heard from; empty while it is."""
        self._evict, self._mode, self._away = evict, mode, away

    def disconnect(self) -> None:
        self._evict = None

    def begin(self, begun: Begun) -> Attempt | str:
        if begun.victim.kind is not VictimKind.POD:
            return "only evicts pods"
        if self._evict is None:
            return NO_CLUSTER
        if self._mode is Mode.NODE:
            return f"not asked (cluster.evictions): {ITSELF}"
        if not begun.namespace:
            return f"the pod's name in the cluster is not known: {ITSELF}"
        if why := self._away():
            return f"the API server is away ({why}): {ITSELF}"
        progress = Progress(kills=False)
        task = asyncio.get_running_loop().create_task(self._ask(self._evict, begun, progress))
        self._running.add(task)  # the loop holds tasks weakly
        task.add_done_callback(self._running.discard)
        return progress

    async def _ask(self, evict: Evict, begun: Begun, progress: Progress) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                await evict(begun.namespace, begun.name, begun.victim.name)
        except TimeoutError:
            progress.error = f"no answer in {ANSWER_S:g} s: {ITSELF}"
        except RefusedError as error:
            gone = error.gone  # what runs here is none of its pods any more
            progress.forbids = self._mode is Mode.ONLY_API and not gone
            progress.error = _refusal(error) if progress.forbids else f"{_refusal(error)}: {ITSELF}"
        except (KubeError, CredentialsError) as error:
            progress.error = f"{error}: {ITSELF}"
        except asyncio.CancelledError:
            progress.error = f"given up: {ITSELF}"
            raise
        finally:
            progress.done = True


def _refusal(error: RefusedError) -> str:
    if error.throttled:
        return "a disruption budget does not allow it"
    return str(error)
