"""One connection to the runtime, from registration to its end
(docs/reference/wire.md 2.3). Imports protobuf,
so it is imported when there is somebody to talk to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

import structlog
from google.protobuf.message import DecodeError

from koordlet.decision.answer import HookFailedError
from koordlet.nri.errors import ClosedError, Code, StatusError, WireError
from koordlet.nri.events import Events
from koordlet.nri.mask import EVENTS, NAMES, UPDATE_POD_SANDBOX, configured_mask, mask
from koordlet.nri.mux import TOO_MANY_PODS, Trunk
from koordlet.nri.options import Options
from koordlet.nri.status import Durations, Generation, Phase, Status
from koordlet.nri.ttrpc import Client, Handler, Server
from koordlet.nri.versions import takes_updates, tells_pod_updates
from koordlet.wire.pb import nri_pb2 as pb

PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"
PLUGIN_CONNECTION = 1
RUNTIME_CONNECTION = 2
MAX_OBJECTS = 100_000
"""Pods and containers in one synchronization: far more than a node holds."""

log = structlog.get_logger()


class Session:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        events: Events,
        status: Status,
        options: Options,
    ) -> None:
        self._events = events
        self._status = status
        self._options = options
        self._trunk = Trunk(reader, writer)
        self._client = Client(self._trunk.sender(RUNTIME_CONNECTION))
        self._server = Server(
            self._trunk.sender(PLUGIN_CONNECTION), {PLUGIN_SERVICE: self._methods()}
        )
        self._trunk.open(PLUGIN_CONNECTION, self._server.receive)
        self._trunk.open(RUNTIME_CONNECTION, self._client.receive)
        self._pods: list[Any] = []
        self._containers: list[Any] = []
        self._synchronized: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Until the runtime closes. Raises ClosedError, WireError, StatusError and OSError; the
        connection is closed and nothing runs any more, however it ends."""
        reading = asyncio.create_task(self._read())
        try:
            await self._register()
            await self._wait_for_pods(reading)
            await reading
        finally:
            reading.cancel()
            self._client.close("the session has ended")
            await asyncio.gather(reading, return_exceptions=True)
            await self._server.close()
            await self._trunk.close()

    @property
    def is_synchronized(self) -> bool:
        return self._synchronized.done()

    async def push(self, updates: Iterable[Any]) -> list[str]:
        """Updates that the runtime did not ask for; ids of those that failed. Not for use in a
        handler: the runtime would wait for itself. Raises StatusError and ClosedError."""
        request = pb.UpdateContainersRequest(update=updates)
        answer = await self._client.call(
            RUNTIME_SERVICE,
            "UpdateContainers",
            request.SerializeToString(),
            self._options.push_s,
        )
        try:
            failed = pb.UpdateContainersResponse.FromString(answer).failed
        except DecodeError as error:
            raise StatusError(Code.INTERNAL, f"the answer cannot be read: {error}") from None
        return [each.container_id for each in failed]

    async def _read(self) -> None:
        why = "the runtime closed the connection"
        try:
            await self._trunk.run()
        except (OSError, WireError, ClosedError) as error:
            why = str(error)
            raise
        finally:
            self._client.close(why)

    async def _register(self) -> None:
        self._status.phase = Phase.REGISTERING
        request = pb.RegisterPluginRequest(
            plugin_name=self._options.name, plugin_idx=self._options.index
        )
        await self._client.call(
            RUNTIME_SERVICE,
            "RegisterPlugin",
            request.SerializeToString(),
            self._options.register_s,
        )

    async def _wait_for_pods(self, reading: asyncio.Task[None]) -> None:
        if not self.is_synchronized:
            self._status.phase = Phase.SYNCHRONIZING
        await asyncio.wait(
            {self._synchronized, reading},
            timeout=self._options.synchronize_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not self.is_synchronized:
            if reading.done():
                await reading
                raise ClosedError(_untold(self._server.refused))
            raise ClosedError(
                f"the runtime told no pods within {self._options.synchronize_s:g} s after "
                "registration"
            )

    def _methods(self) -> dict[str, Handler]:
        answering: dict[str, tuple[Any, Callable[[Any], Any]]] = {
            "Configure": (pb.ConfigureRequest, self._configure),
            "Synchronize": (pb.SynchronizeRequest, self._synchronize),
            "Shutdown": (pb.Empty, lambda _: pb.Empty()),
            "CreateContainer": (pb.CreateContainerRequest, self._create_container),
            "UpdateContainer": (pb.UpdateContainerRequest, self._update_container),
            "StopContainer": (pb.StopContainerRequest, self._stop_container),
            "StateChange": (pb.StateChangeEvent, self._state_change),
            "UpdatePodSandbox": (pb.UpdatePodSandboxRequest, self._update_pod),
            # Not subscribed; a runtime that asks all the same gets no opinion.
            "PostUpdatePodSandbox": (
                pb.PostUpdatePodSandboxRequest,
                lambda _: pb.PostUpdatePodSandboxResponse(),
            ),
            "ValidateContainerAdjustment": (
                pb.ValidateContainerAdjustmentRequest,
                lambda _: pb.ValidateContainerAdjustmentResponse(),
            ),
        }
        for name, number in EVENTS.items():
            if name not in answering:
                answering[name] = (getattr(pb, f"{name}Request"), self._dedicated(name, number))
        return {name: self._timed(name, *how) for name, how in answering.items()}

    def _timed(self, name: str, request: Any, answer: Callable[[Any], Any]) -> Handler:
        async def handle(payload: bytes) -> bytes:
            started = time.perf_counter()
            try:
                result: bytes = answer(request.FromString(payload)).SerializeToString()
            except StatusError:
                raise
            except Exception as error:
                self._status.failed(f"{name}: {type(error).__name__}: {error}")
                raise
            finally:
                durations = self._status.durations.setdefault(name, Durations())
                durations.add(1000 * (time.perf_counter() - started))
            return result

        return handle

    def _configure(self, request: Any) -> Any:
        """Raises ValueError for a configuration that is not ours: the runtime then closes."""
        status = self._status
        status.runtime_name = request.runtime_name
        status.runtime_version = request.runtime_version
        status.nri_version = request.NRI_version
        status.request_timeout_s = request.request_timeout / 1000
        self._events.runtime = request.runtime_name
        status.event_mask = configured_mask(request.config)
        if tells_pod_updates(status.runtime_name, status.runtime_version, status.nri_version):
            status.event_mask |= mask(UPDATE_POD_SANDBOX)
        return pb.ConfigureResponse(events=status.event_mask)

    def _synchronize(self, request: Any) -> Any:
        """Parts until one that is the last; nothing counts before that."""
        self._pods.extend(request.pods)
        self._containers.extend(request.containers)
        if len(self._pods) + len(self._containers) > MAX_OBJECTS:
            self._pods, self._containers = [], []
            text = f"more than {MAX_OBJECTS} pods and containers"
            raise StatusError(Code.RESOURCE_EXHAUSTED, text)
        if request.more:
            return pb.SynchronizeResponse(more=True)
        status = self._status
        pods, self._pods = self._pods, []
        containers, self._containers = self._containers, []
        status.pods, status.containers = self._events.synchronize(pods, containers)
        if self.is_synchronized:
            return pb.SynchronizeResponse()
        status.sessions += 1
        status.phase = Phase.CONNECTED
        status.since = time.time()
        self._synchronized.set_result(None)
        log.info(
            "nri.connected",
            runtime=status.runtime_name,
            version=status.runtime_version,
            pods=status.pods,
            containers=status.containers,
            takes_updates=takes_updates(status.nri_version),
        )
        return pb.SynchronizeResponse()

    def _create_container(self, request: Any) -> Any:
        self._status.count("CreateContainer")
        adjust = self._guarded(
            "CreateContainer",
            lambda: self._events.create_container(request.pod, request.container),
        )
        if adjust is None:
            return pb.CreateContainerResponse()
        self._status.adjusted += 1
        return pb.CreateContainerResponse(adjust=adjust)

    def _update_container(self, request: Any) -> Any:
        self._status.count("UpdateContainer")
        update = self._guarded(
            "UpdateContainer",
            lambda: self._events.update_container(
                request.pod, request.container, request.linux_resources
            ),
        )
        if update is None:
            return pb.UpdateContainerResponse()
        self._status.updated += 1
        return pb.UpdateContainerResponse(update=[update])

    def _update_pod(self, request: Any) -> Any:
        self._status.count("UpdatePodSandbox")
        self._guarded(
            "UpdatePodSandbox",
            lambda: self._events.update_pod(
                request.pod, request.linux_resources, request.overhead_linux_resources
            ),
        )
        return pb.UpdatePodSandboxResponse()

    def _stop_container(self, request: Any) -> Any:
        self._event(EVENTS["StopContainer"], request)
        return pb.StopContainerResponse()

    def _state_change(self, request: Any) -> Any:
        self._status.generation = Generation.STATE_CHANGE
        self._event(request.event, request)
        return pb.Empty()

    def _dedicated(self, name: str, number: int) -> Callable[[Any], Any]:
        response = getattr(pb, f"{name}Response")

        def answer(request: Any) -> Any:
            self._status.generation = Generation.DEDICATED
            self._event(number, request)
            return response()

        return answer

    def _event(self, number: int, request: Any) -> None:
        """``request``: with a pod, a container or both."""
        known = request.DESCRIPTOR.fields_by_name
        pod = request.pod if "pod" in known and request.HasField("pod") else None
        has_container = "container" in known and request.HasField("container")
        container = request.container if has_container else None
        name = NAMES.get(number, "other")
        self._status.count(name)
        self._guarded(name, lambda: self._events.event(number, pod, container))

    def _guarded(self, name: str, act: Callable[[], Any]) -> Any:
        """What ``act`` returns; None where it fails: no fault of ours may cost a pod. A hook whose
        failure shall fail the operation does so."""
        try:
            return act()
        except HookFailedError as error:
            self._status.refused += 1
            raise StatusError(Code.UNKNOWN, f"koordlet: {error}") from None
        except Exception as error:  # the isolation boundary: one event, whatever it raised
            self._status.failed(f"{name}: {type(error).__name__}: {error}")
            log.exception("nri.event-failed", nri_event=name)
            return None


def _untold(refused: str) -> str:
    """Return why the runtime closed before it told its pods."""
    why = "the runtime closed the connection before it told its pods"
    return f"{why}: {refused}. {TOO_MANY_PODS}" if refused else why
