"""One write for each pod: the Binding, with annotations and the pod's uid.

What the server answered decides; where it did not answer, the watch does. A binding can succeed
once only, so a pod never gets two nodes: the second is refused (409).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import NamedTuple

from koord_scheduler.kube.writes import NotLeadingError, Writes
from koord_scheduler.model.annotations import GIVEN
from koord_scheduler.model.cluster.pods import Pod
from koordlet.kube.budget import Priority
from koordlet.kube.client import Client
from koordlet.kube.errors import (
    CredentialsError,
    KubeError,
    NoAnswerError,
    NotSentError,
    RefusedError,
)
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object, Shape

SETTLE_S = 2.0
"""How long the watch may take to show what became of a binding, before the pod itself is asked."""


class Bound(Enum):
    YES = "bound"
    NO = "not bound"
    """It is as before: to be decided anew."""
    GONE = "gone"
    """Deleted, or another pod by this name."""
    ELSEWHERE = "elsewhere"
    """Somebody else gave it a node; the watch says which."""


class Outcome(NamedTuple):
    bound: Bound
    why: str = ""


class _Spec(Shape, frozen=True):
    node_name: str = ""


class _Pod(Object, frozen=True):
    spec: _Spec = _Spec()


_PODS = Kind("", "v1", "Pod", "pods", True, _Pod)


class Binder:
    """``node_of``: where the watch shows the pod with this key and uid; None where it does not show
    such a pod any more, empty where it has no node yet."""

    def __init__(
        self,
        client: Client,
        writes: Writes,
        node_of: Callable[[Pod], str | None],
        *,
        settle_s: float = SETTLE_S,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client, self._writes, self._node_of = client, writes, node_of
        self._settle_s, self._pause = settle_s, pause

    async def bind(self, pod: Pod, node: str, annotations: Mapping[str, str]) -> Outcome:
        """Raises nothing but what cancels it."""
        namespace, _, name = pod.key.partition("/")
        try:
            stale = [key for key in GIVEN if key in pod.annotations and key not in annotations]
            if stale:
                # A binding can add annotations and take none away.
                gone = {"metadata": {"uid": pod.uid, "annotations": dict.fromkeys(stale)}}
                await self._writes.patch(_PODS, name, gone, namespace, priority=Priority.BIND)
            await self._writes.bind(namespace, name, node, uid=pod.uid, annotations=annotations)
        except NotLeadingError as error:
            return Outcome(Bound.NO, str(error))
        except NotSentError as error:
            return Outcome(Bound.NO, str(error))
        except NoAnswerError as error:
            return await self._settled(pod, node, str(error))
        except RefusedError as error:
            if error.missing:
                return Outcome(Bound.GONE, str(error))
            if error.conflict:
                # Perhaps our own binding: a proxy may have sent it twice.
                return await self._settled(pod, node, str(error))
            if error.status >= 500:
                return await self._settled(pod, node, str(error))
            return Outcome(Bound.NO, str(error))
        except (KubeError, CredentialsError) as error:
            return await self._settled(pod, node, str(error))
        return Outcome(Bound.YES)

    async def _settled(self, pod: Pod, node: str, why: str) -> Outcome:
        """The watch is as good as any answer; then the pod is asked."""
        found = self._node_of(pod)
        if found == "":
            await self._pause(self._settle_s)
            found = self._node_of(pod)
        if found == "":
            namespace, _, name = pod.key.partition("/")
            try:
                item = await self._client.get(_PODS, name, namespace, priority=Priority.BIND)
            except RefusedError as error:
                if error.missing:
                    return Outcome(Bound.GONE, why)
                return Outcome(Bound.NO, f"{why}; {error}")
            except (KubeError, CredentialsError) as error:
                # If it is bound after all, the next binding is refused and the watch tells.
                return Outcome(Bound.NO, f"{why}; {error}")
            found = item.spec.node_name if item.metadata.uid == pod.uid else None
        if found is None:
            return Outcome(Bound.GONE, why)
        if not found:
            return Outcome(Bound.NO, why)
        return Outcome(Bound.YES if found == node else Bound.ELSEWHERE, why)
