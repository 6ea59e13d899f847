"""What kubelet says of itself, of its CPUs, and of pods while the API server is away."""

from __future__ import annotations

import asyncio
import importlib
import math
import os
from collections.abc import Awaitable, Callable
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
from koordlet.cluster.shapes import Node
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
    themselves. ``config_error``, ``pods_error``: why kubelet does not say what it is asked
    for; ``cpu_error``: why ``held`` is not known. Each is empty while all is well."""

    def __init__(self, member: Member, credentials: Cluster) -> None:
        self._member = member
        self._options = member.options
        self._host = member.around.host
        self._kubelet = Kubelet(credentials, member.options)
        self.config: KubeletConfig | None = None
        self.held: tuple[Allocation, ...] = ()
        self.config_error = self.pods_error = self.cpu_error = ""
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

    @property
    def error(self) -> str:
        """Why kubelet does not answer what it is asked at present."""
        return self.config_error or self.pods_error

    async def _ask(self) -> None:
        now_s, node, before = self._host.monotonic(), self._member.node, self.error
        wants_pods = self._wants_pods(now_s)
        if node is None:
            return
        if now_s >= self._config_due_s:
            self.config_error = await self._tried(self._ask_config, node)
            self._config_due_s = now_s + (AGAIN_S if self.config_error else CONFIG_S)
        if wants_pods:
            self.pods_error = await self._tried(self._ask_pods, node)
            self._pods_due_s = now_s + (AGAIN_S if self.pods_error else PODS_S)
        self._member.around.listed["kubelet"].error = self.pods_error
        if self.error and not before:
            log.warning("kubelet does not answer", error=self.error)
        elif before and not self.error:
            log.info("kubelet answers")

    async def _tried(self, ask: Callable[[Place], Awaitable[None]], node: Node) -> str:
        """Why it failed."""
        try:
            await ask(place_of(node, self._options.kubelet_address))
        except KubeletError as error:
            return str(error)
        return ""

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
        pods = list[PodFacts]()
        async for each in self._kubelet.pods(place):
            if uid_of(each) and not has_ended(each):
                pods.append(facts_of(each))
        self.lists += 1
        if not pods and source.pods():
            return  # kubelet has just started and does not know its pods yet
        source.replace(pods)

    def _wants_pods(self, now_s: float) -> bool:
        member = self._member
        source = member.around.listed["kubelet"]
        if self._options.pods != "kubelet":
            is_away = self._options.pods == "auto" and (
                member.pods is None or not member.pods.synced or bool(member.pods.error)
            )
            if not is_away:
                self._away_since_s = None
                self.pods_error = ""  # nobody asks for them
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
