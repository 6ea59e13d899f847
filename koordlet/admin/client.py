"""The caller's side of the local API, for the commands. Synchronous; imports grpc on connect."""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from threading import current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from koordlet.admin import DEFAULT_SOCKET
from koordlet.admin.blame import BlameView, WhyView
from koordlet.admin.devices import DevicesView
from koordlet.admin.model.configuration import ConfigView, ReloadView
from koordlet.admin.model.doctor import DoctorView
from koordlet.admin.model.events import EventView, ExplainView
from koordlet.admin.model.status import StatusView
from koordlet.admin.model.usage import PodView, TopView
from koordlet.admin.prediction import PredictView
from koordlet.admin.ranges import QueryView, RangeView
from koordlet.admin.runtime import HooksView, NriView
from koordlet.admin.strategies import StrategiesView
from koordlet.admin.undo import PausedView, RestoreView, ResumedView
from koordlet.decision.names import encodable

if TYPE_CHECKING:
    import grpc

CONNECT_TIMEOUT_S = 2.0
CALL_TIMEOUT_S = 10.0
SEARCH_TIMEOUT_S = 120.0
"""For a query: a day of a full node takes the daemon's thread half a minute, more behind others."""

V = TypeVar("V", bound=msgspec.Struct)


class NotReachableError(Exception):
    """No daemon answers on the socket; the text says why and what to do."""


class NoAccessError(NotReachableError):
    """There may well be a daemon, but this user must not open its socket."""


class DeniedError(Exception):
    """The daemon answers, but not this to this user."""


class Fault(StrEnum):
    NOT_FOUND = "not-found"
    INVALID = "invalid"
    INTERNAL = "internal"
    BUSY = "busy"


class RefusedError(Exception):
    """The daemon understood and said no; ``fault`` says of which kind."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class _Pods(msgspec.Struct, frozen=True):
    pods: tuple[PodView, ...]


class Client:
    """Raises NotReachableError, DeniedError and RefusedError, and nothing of grpc."""

    def __init__(self, path: str = DEFAULT_SOCKET) -> None:
        self._path = path
        _try_to_connect(path)
        import grpc

        from koordlet.admin.pb import admin_pb2, admin_pb2_grpc

        self._grpc = grpc
        self._pb = admin_pb2
        # The socket is local: a proxy from the environment is never meant.
        options = [
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),  # a connection of its own for each Client
        ]
        self._channel = grpc.insecure_channel(f"unix:{path}", options=options)
        self._stub = admin_pb2_grpc.AdminStub(self._channel)

    def __enter__(self) -> Client:
        self._replaces = _replaces_interrupt()
        if self._replaces:
            signal.signal(signal.SIGINT, _end_interrupted)
        return self

    def __exit__(self, *exc: object) -> None:
        self._channel.close()
        if self._replaces:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def status(self) -> StatusView:
        return self._call("Status", self._pb.StatusRequest(), StatusView)

    def pods(self) -> tuple[PodView, ...]:
        return self._call("Pods", self._pb.PodsRequest(), _Pods).pods

    def explain(self, target: str, limit: int) -> ExplainView:
        request = self._pb.ExplainRequest(target=encodable(target), limit=limit)
        return self._call("Explain", request, ExplainView)

    def query(
        self,
        kind: str,
        match: Mapping[str, str],
        window_s: float,
        aggregate: str,
        until: float | None = None,
    ) -> QueryView:
        """``until``: unix time that the window ends at; None: now."""
        request = self._pb.QueryRequest(
            kind=kind, match=match, window_s=window_s, aggregate=aggregate, until=until
        )
        return self._call("Query", request, QueryView, SEARCH_TIMEOUT_S)

    def query_range(
        self,
        kind: str,
        match: Mapping[str, str],
        start: float,
        end: float,
        step_s: float,
        aggregate: str,
    ) -> Iterator[RangeView]:
        """The pieces of one answer; a long one takes its time."""
        request = self._pb.QueryRangeRequest(
            kind=kind, match=match, start=start, end=end, step_s=step_s, aggregate=aggregate
        )
        return self._stream("QueryRange", request, RangeView)

    def blame(self, target: str, window_s: float) -> BlameView:
        request = self._pb.BlameRequest(target=encodable(target), window_s=window_s)
        return self._call("Blame", request, BlameView)

    def doctor(self) -> DoctorView:
        return self._call("Doctor", self._pb.DoctorRequest(), DoctorView)

    def hooks(self, target: str) -> HooksView:
        return self._call("Hooks", self._pb.HooksRequest(target=encodable(target)), HooksView)

    def nri(self) -> NriView:
        return self._call("Nri", self._pb.NriRequest(), NriView)

    def strategies(self, name: str) -> StrategiesView:
        request = self._pb.StrategiesRequest(name=name)
        return self._call("Strategies", request, StrategiesView)

    def devices(self) -> DevicesView:
        return self._call("Devices", self._pb.DevicesRequest(), DevicesView)

    def predict(self, target: str, window_s: float = 0.0) -> PredictView:
        request = self._pb.PredictRequest(target=encodable(target), window_s=window_s)
        return self._call("Predict", request, PredictView)

    def restore(self, *, dry_run: bool, force: bool = False) -> RestoreView:
        request = self._pb.RestoreRequest(dry_run=dry_run, force=force)
        return self._call("Restore", request, RestoreView)

    def pause(
        self,
        owners: Sequence[str],
        cgroups: Sequence[str],
        for_s: float | None,
        reason: str,
    ) -> PausedView:
        request = self._pb.PauseRequest(owners=owners, cgroups=cgroups, for_s=for_s, reason=reason)
        return self._call("Pause", request, PausedView)

    def resume(self, owners: Sequence[str], cgroups: Sequence[str]) -> ResumedView:
        request = self._pb.ResumeRequest(owners=owners, cgroups=cgroups)
        return self._call("Resume", request, ResumedView)

    def config(self) -> ConfigView:
        return self._call("ConfigShow", self._pb.ConfigShowRequest(), ConfigView)

    def reload(self) -> ReloadView:
        return self._call("Reload", self._pb.ReloadRequest(), ReloadView)

    def top(self, interval_s: float) -> Iterator[TopView]:
        """Frames until closed or the daemon stops (NotReachableError)."""
        return self._stream("Top", self._pb.TopRequest(interval_s=interval_s), TopView)

    def why(self, target: str, at: float | None = None) -> WhyView:
        """``at``: unix seconds; None: now."""
        request = self._pb.WhyRequest(target=encodable(target), at=at)
        return self._call("Why", request, WhyView, SEARCH_TIMEOUT_S)

    def events(
        self,
        *,
        since: float,
        follow: bool,
        kinds: Sequence[str] = (),
        subject: str = "",
    ) -> Iterator[EventView]:
        request = self._pb.EventsRequest(
            since=since, follow=follow, kinds=kinds, subject=encodable(subject)
        )
        return self._stream("Events", request, EventView)

    def _call(
        self, method: str, request: Any, view: type[V], timeout_s: float = CALL_TIMEOUT_S
    ) -> V:
        from koordlet.admin import wire

        with self._errors():
            answer = getattr(self._stub, method)(request, timeout=timeout_s)
        return wire.from_message(answer, view)

    def _stream(self, method: str, request: Any, view: type[V]) -> Iterator[V]:
        from koordlet.admin import wire

        call = getattr(self._stub, method)(request)
        try:
            with self._errors():
                for message in call:
                    yield wire.from_message(message, view)
        finally:
            call.cancel()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._grpc.RpcError as error:
            raise self._translated(error) from error

    def _translated(self, error: grpc.RpcError) -> Exception:
        code, text = error.code(), error.details() or ""
        codes = self._grpc.StatusCode
        if code in (codes.UNAVAILABLE, codes.DEADLINE_EXCEEDED, codes.CANCELLED):
            return NotReachableError(
                f"koordlet on {self._path} stopped answering ({text}). "
                "See `systemctl status koordlet`."
            )
        if code is codes.PERMISSION_DENIED:
            return DeniedError(text)
        if code is codes.NOT_FOUND:
            return RefusedError(Fault.NOT_FOUND, text)
        if code is codes.INVALID_ARGUMENT:
            return RefusedError(Fault.INVALID, text)
        if code is codes.RESOURCE_EXHAUSTED:
            return RefusedError(
                Fault.BUSY, f"koordlet is answering too many calls already; try again ({text})"
            )
        return RefusedError(Fault.INTERNAL, f"the daemon failed: {text} ({code.name})")


def _replaces_interrupt() -> bool:
    """Return whether SIGINT raises KeyboardInterrupt in this thread. Inside grpc, such an exception
    leaves calls that grpc's own thread does not know: closing the channel then hangs or aborts."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return raises and current_thread() is main_thread()


def _end_interrupted(number: int, frame: FrameType | None) -> None:
    """End the process with the exit code that a shell shows for the signal."""
    os._exit(128 + number)


def _try_to_connect(path: str) -> None:
    """grpc retries and hides errno; a plain connect says at once what is wrong."""
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Blocking, with a limit: while its queue is full the kernel refuses all others at once.
    seconds = struct.pack("@ll", int(CONNECT_TIMEOUT_S), 0)  # struct timeval
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)
    try:
        probe.connect(path)
    except FileNotFoundError:
        raise NotReachableError(
            f"no koordlet is running: {path} does not exist. Start it with "
            "`systemctl start koordlet`, look at `systemctl status koordlet`, or name another "
            "socket with --socket."
        ) from None
    except ConnectionRefusedError:
        raise NotReachableError(
            f"koordlet is not running: nobody listens on {path}, which an earlier one left. "
            "Start it with `systemctl start koordlet`, look at `systemctl status koordlet`."
        ) from None
    except PermissionError:
        raise NoAccessError(
            f"no permission to open {path}: only root and members of the socket's group may. "
            f"Use sudo, or see `ls -l {path}` for the group to join."
        ) from None
    except OSError as error:
        raise NotReachableError(
            f"cannot connect to {path}: {error.strerror or error}. "
            "Look at `systemctl status koordlet`."
        ) from None
    finally:
        probe.close()
