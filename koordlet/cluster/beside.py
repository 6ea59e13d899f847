"""What kubelet says of itself, of its CPUs, and of pods while the API server is away."""

from __future__ import annotations

import asyncio
import importlib
import math
import os
from typing import TYPE_CHECKING

import structlog

from koordlet.cluster.kubelet import Kubelet, Place, place_of
from koordlet.cluster.kubelet_config import (
    STATIC,
    Allocation,
    KubeletConfig,
    KubeletError,
    allocations,
    is_managed,
    read_cpu_state,
)
from koordlet.cluster.pods import facts_of, has_ended, uid_of
from koordlet.decision.facts import PodFacts
from koordlet.kube.credentials import Cluster

if TYPE_CHECKING:
    from koordlet.cluster.member import Member

log = structlog.get_logger()

LOOK_S = 1.0
CONFIG_S = 60.0
"""Kubelet reads its configuration at its start alone."""
PODS_S = 10.0
AGAIN_S = 5.0
"""After a call that failed."""
AWAY_S = 3.0
"""How long the API server may be away before kubelet is asked for pods."""
CPU_STATE = "cpu_manager_state"
MOST_CPU_STATE_BYTES = 1 << 20
SOCKET = "pod-resources/kubelet.sock"


class KubeletFollower:
    """``config``: None while kubelet has not told it. ``held``: which CPUs containers have for
    themselves. ``error``, ``cpu_error``: why kubelet does not answer, and why ``held`` is not
    known; empty while they are."""

    def __init__(self, member: Member, credentials: Cluster) -> None:
        self._member = member
        self._options = member.options
        self._host = member.around.host
        self._kubelet = Kubelet(credentials, member.options)
        self.config: KubeletConfig | None = None
        self.held: tuple[Allocation, ...] = ()
        self.error = self.cpu_error = ""
        self.lists = 0
        """Of pods, since the start."""
        self._config_due_s = self._pods_due_s = self._cpus_due_s = -math.inf
        self._away_since_s: float | None = None
        self._unknown: frozenset[str] = frozenset()
        self._state = b""

    async def run(self) -> None:
        try:
            while True:
                if self._options.kubelet:
                    await self._ask()
                before = self.held
                await self._look_at_cpus()
                if self.held != before:
                    self._member.tell_node()
                await asyncio.sleep(LOOK_S)
        finally:
            await self._kubelet.close()

    async def _ask(self) -> None:
        now_s, node = self._host.monotonic(), self._member.node
        wants_config, wants_pods = now_s >= self._config_due_s, self._wants_pods(now_s)
        if node is None or not (wants_config or wants_pods):
            return
        try:
            place = place_of(node, self._options.kubelet_address)
            if wants_config:
                self._config_due_s = now_s + AGAIN_S
                await self._ask_config(place)
                self._config_due_s = now_s + CONFIG_S
            if wants_pods:
                self._pods_due_s = now_s + AGAIN_S
                await self._ask_pods(place)
                self._pods_due_s = now_s + PODS_S
        except KubeletError as error:
            self._failed(str(error))
        else:
            if self.error:
                log.info("kubelet answers")
            self._failed("")

    def _failed(self, error: str) -> None:
        if error and not self.error:
            log.warning("kubelet does not answer", error=error)
        self.error = error
        source = self._member.around.listed["kubelet"]
        source.error = error if source.listed else ""

    async def _ask_config(self, place: Place) -> None:
        found = await self._kubelet.config(place)
        if found != self.config:
            self.config = found
            log.info(
                "kubelet",
                cpu_manager=found.cpu_manager_policy,
                topology_manager=found.topology_manager_policy,
                reserved_milli=found.reserved_milli,
            )
            self._member.tell_node()

    async def _ask_pods(self, place: Place) -> None:
        source = self._member.around.listed["kubelet"]
        pods = [
            pod for pod in await self._kubelet.pods(place) if uid_of(pod) and not has_ended(pod)
        ]
        self.lists += 1
        if not pods and source.pods():
            return  # kubelet has just started and does not know its pods yet
        source.replace(facts_of(pod) for pod in pods)

    def _wants_pods(self, now_s: float) -> bool:
        member = self._member
        source = member.around.listed["kubelet"]
        if self._options.pods != "kubelet":
            is_away = self._options.pods == "auto" and (
                member.pods is None or not member.pods.synced or bool(member.pods.error)
            )
            if not is_away:
                self._away_since_s = None
                if source.listed:
                    source.clear()
                return False
            if self._away_since_s is None:
                self._away_since_s = now_s
            if now_s - self._away_since_s < AWAY_S:
                return False
        return now_s >= self._pods_due_s or self._has_news()

    def _has_news(self) -> bool:
        """Whether a pod is here of which kubelet has not been asked."""
        source = self._member.around.listed["kubelet"]
        unknown = frozenset(source.alive()) - {pod.uid for pod in source.pods()}
        is_news = bool(unknown - self._unknown)
        self._unknown = unknown
        return is_news

    async def _look_at_cpus(self) -> None:
        """Kubelet's file each second, its socket where there is no file."""
        if self.config is None or self.config.cpu_manager_policy != STATIC:
            self.held, self.cpu_error = (), ""
            return
        path = os.path.join(self._options.kubelet_dir, CPU_STATE)
        try:
            data = self._host.read_ordinary(path, MOST_CPU_STATE_BYTES)
            if data.strip() or not self._state:
                self._state = data
            self.held = allocations(read_cpu_state(self._state), self._listed_pods())
            self.cpu_error = ""
        except KubeletError as error:
            self.cpu_error = str(error)
        except OSError as error:
            await self._ask_socket(f"{path}: {error.strerror}")

    async def _ask_socket(self, why: str) -> None:
        now_s = self._host.monotonic()
        if now_s < self._cpus_due_s:
            return
        self._cpus_due_s = now_s + PODS_S
        socket = os.path.join(self._options.kubelet_dir, SOCKET)
        if not os.path.exists(socket):
            self.cpu_error = f"{why}; and there is no {socket}"
            return
        module = await asyncio.to_thread(importlib.import_module, "koordlet.cluster.pod_resources")
        try:
            held = await module.held(socket)
        except KubeletError as error:
            self.cpu_error = f"{why}; {error}"
            return
        by_name = {(pod.namespace, pod.name): pod for pod in self._listed_pods()}
        found = ((by_name.get((each.namespace, each.name)), each) for each in held)
        self.held = tuple(
            Allocation(pod.uid if pod is not None else "", each.cpus, pod)
            for pod, each in found
            if pod is None or not is_managed(pod)
        )
        self.cpu_error = ""

    def _listed_pods(self) -> tuple[PodFacts, ...]:
        listed = self._member.around.listed
        return (*listed["kubelet"].pods(), *listed["api"].pods())
