"""The controller of profiles: pods that wait for a node get what their profiles say now
(docs/reference/protocol.md 6.6)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import NamedTuple

import structlog

from koord_scheduler.admission.profiles import Profile
from koord_scheduler.admission.reconciling import falls_under, managed, reconciled
from koord_scheduler.admission.words import AdmissionError
from koord_scheduler.daemon.admission import gates_of
from koord_scheduler.daemon.controller import Context
from koord_scheduler.kube.queue import UNFORESEEN
from koord_scheduler.kube.shapes import PODS, Pod
from koord_scheduler.kube.writes import NotLeadingError
from koord_scheduler.webhook.kinds import NAMESPACES, PROFILES
from koordlet.kube.budget import Priority, RequestBudget
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError

EVERY_S = 30.0
HANDLED_S = 300.0
"""A pod that a profile has had is left alone by it for so long."""
_PER_S, _BURST = 10.0, 100
_MOST_HANDLED = 100_000
_log = structlog.get_logger()


class _Handled(NamedTuple):
    profile: str
    uid: str


class ProfileController:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._gates = gates_of(context.options)
        self._by_default = bool(
            context.options.extra.get("colocation_profile_reconcile_by_default")
        )
        self._profiles = context.watches.of(PROFILES)
        self._namespaces = context.watches.of(NAMESPACES)
        self._pods = context.watches.of(PODS)
        self._budget = RequestBudget(_PER_S, _BURST, context.clock)
        self._handled: dict[_Handled, float] = {}
        self.outcomes: Counter[tuple[str, ...]] = context.metrics.counter(
            "koord_scheduler_profile_updates_total",
            "Pods that exist already and fell under a profile, by profile and outcome.",
            "profile",
            "outcome",
        )

    async def run(self) -> None:
        while True:
            self._forget()
            profiles = (each.profile for each in self._profiles.objects.values())
            chosen = managed(profiles, by_default=self._by_default)
            waiting = self._waiting() if chosen else []
            for profile in chosen:
                await self._one_profile(profile, waiting)
                await asyncio.sleep(0)
            await asyncio.sleep(EVERY_S)

    def _forget(self) -> None:
        now_s = self._context.clock()
        self._handled = {key: s for key, s in self._handled.items() if now_s - s < HANDLED_S}

    async def _one_profile(self, profile: Profile, waiting: list[Pod]) -> None:
        for pod in waiting:
            namespace = self._namespaces.get(pod.metadata.namespace)
            if namespace is None or not falls_under(
                profile, pod.metadata.labels, namespace.metadata.labels
            ):
                continue
            mark = _Handled(profile.name, pod.metadata.uid)
            if mark in self._handled or len(self._handled) >= _MOST_HANDLED:
                continue
            if self._budget.waiting:
                return
            await self._budget.take(Priority.STATUS)
            try:
                outcome = await self._one_pod(profile, pod)
            except NotLeadingError:
                return
            except AdmissionError as error:
                outcome = "failed"
                self._tell(profile, pod, error.message)
            except RefusedError as error:
                # Changed or gone meanwhile: the next round sees what it is now.
                outcome = "conflict" if error.conflict or error.missing else "refused"
                if outcome == "refused":
                    self._tell(profile, pod, str(error))
            except (KubeError, CredentialsError) as error:
                self._tell(profile, pod, str(error))
                return
            except UNFORESEEN as error:
                outcome = "failed"
                self._tell(profile, pod, f"a defect: {type(error).__name__}: {error}")
            self.outcomes[profile.name, outcome] += 1
            if outcome != "conflict":
                self._handled[mark] = self._context.clock()

    def _waiting(self) -> list[Pod]:
        """For a node. Of a hundred thousand pods they are few: looked for once for all profiles."""
        return [
            pod
            for pod in self._pods.objects.values()
            if not pod.spec.node_name and pod.status.phase in ("", "Pending")
        ]

    async def _one_pod(self, profile: Profile, pod: Pod) -> str:
        """The outcome. Raises KubeError and AdmissionError."""
        client, meta = self._context.client, pod.metadata
        tree = await client.tree(PODS.path(meta.namespace, meta.name))
        if tree["metadata"].get("uid") != meta.uid or tree["spec"].get("nodeName"):
            return "conflict"
        made = reconciled(tree, profile, self._gates, random.random)
        if made.pod is None:
            if made.why and made.why != "not drawn":
                self._tell(profile, pod, made.why)
                return "refused"
            return "left out" if made.why else "unchanged"
        # The version that was read goes with it, so that nothing newer is lost.
        await self._context.writes.replace(PODS, meta.name, made.pod, meta.namespace)
        return "updated"

    def _tell(self, profile: Profile, pod: Pod, error: str) -> None:
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        _log.warning("a profile was not applied", profile=profile.name, pod=name, error=error)


def make(context: Context) -> ProfileController:
    return ProfileController(context)
