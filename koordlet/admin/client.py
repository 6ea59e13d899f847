"""The caller's side of the local API, for the commands. Synchronous; imports grpc on connect."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from koordlet.admin import DEFAULT_SOCKET
from koordlet.admin import line as calls
from koordlet.admin.blame import BlameView, WhyView
from koordlet.admin.devices import DevicesView
from koordlet.admin.line import CallError, Line
from koordlet.admin.model.configuration import ConfigView, ReloadView
from koordlet.admin.model.doctor import DoctorView
from koordlet.admin.model.events import EventView, ExplainView
from koordlet.admin.model.nri import NriView
from koordlet.admin.model.status import StatusView
from koordlet.admin.model.usage import PodView, TopView
from koordlet.admin.prediction import PredictView
from koordlet.admin.ranges import QueryView, RangeView
from koordlet.admin.strategies import StrategiesView
from koordlet.admin.undo import PausedView, RestoreView, ResumedView
from koordlet.decision.names import encodable

if TYPE_CHECKING:
    from koordlet.admin.runtime import HooksView

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
    """Raises NotReachableError, DeniedError and RefusedError."""

    def __init__(self, path: str = DEFAULT_SOCKET) -> None:
        self._path = path
        self._idle = [Line(_connected(path))]
        self._busy: set[Line] = set()
        from koordlet.admin.pb import admin_pb2

        self._pb = admin_pb2

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        for line in (*self._idle, *self._busy):
            line.close()

    def greet(self) -> None:
        """Wait until the daemon says a word: one that hangs is connected to as well, and a long
        search need not be waited for to see that."""
        with self._connection() as line:
            try:
                line.greet(CALL_TIMEOUT_S)
            except CallError as error:
                line.close()
                raise self._translated(error) from None

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
        from koordlet.admin.runtime import HooksView

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
        with self._connection() as line:
            was_idle = line.was_used
            try:
                (answer,) = self._answers(line, method, request, view, timeout_s)
            except CallError as error:
                failed = error
            else:
                return answer
        if was_idle and failed.unheard:  # it may have been closed for that
            return self._call(method, request, view, timeout_s)
        raise self._translated(failed)

    def _stream(self, method: str, request: Any, view: type[V]) -> Iterator[V]:
        with self._connection() as line:
            try:
                yield from self._answers(line, method, request, view)
            except CallError as error:
                raise self._translated(error) from None

    @contextmanager
    def _connection(self) -> Iterator[Line]:
        """Each call that goes on has one of its own."""
        line = self._idle.pop() if self._idle else Line(_connected(self._path))
        self._busy.add(line)
        try:
            yield line
        finally:
            self._busy.discard(line)
            if line.is_open:
                self._idle.append(line)

    def _answers(
        self, line: Line, method: str, request: Any, view: type[V], timeout_s: float | None = None
    ) -> Iterator[V]:
        from google.protobuf.message_factory import GetMessageClass

        from koordlet.admin import wire

        service = self._pb.DESCRIPTOR.services_by_name["Admin"]
        answer = GetMessageClass(service.methods_by_name[method].output_type)
        path = f"/{service.full_name}/{method}"
        with closing(line.call(path, request.SerializeToString(), timeout_s)) as messages:
            for message in messages:
                yield wire.from_message(answer.FromString(message), view)

    def _translated(self, error: CallError) -> Exception:
        status, text = error.status, str(error)
        if status in (calls.UNAVAILABLE, calls.DEADLINE_EXCEEDED, calls.CANCELLED):
            return NotReachableError(
                f"koordlet on {self._path} stopped answering ({text}). "
                "See `systemctl status koordlet`."
            )
        if status == calls.PERMISSION_DENIED:
            return DeniedError(text)
        if status == calls.NOT_FOUND:
            return RefusedError(Fault.NOT_FOUND, text)
        if status == calls.INVALID_ARGUMENT:
            return RefusedError(Fault.INVALID, text)
        if status == calls.RESOURCE_EXHAUSTED:
            return RefusedError(
                Fault.BUSY, f"koordlet is answering too many calls already; try again ({text})"
            )
        return RefusedError(Fault.INTERNAL, f"the daemon failed: {text} ({calls.NAMES[status]})")


def _connected(path: str) -> socket.socket:
    """Raises NotReachableError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Blocking, with a limit: while its queue is full the kernel refuses all others at once.
    seconds = struct.pack("@ll", int(CONNECT_TIMEOUT_S), 0)  # struct timeval
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)
    try:
        connection.connect(path)
        return connection
    except OSError as error:
        connection.close()
        raise _not_connected(path, error) from None


def _not_connected(path: str, error: OSError) -> NotReachableError:
    if isinstance(error, FileNotFoundError):
        return NotReachableError(
            f"no koordlet is running: {path} does not exist. Start it with "
            "`systemctl start koordlet`, look at `systemctl status koordlet`, or name another "
            "socket with --socket."
        )
    if isinstance(error, ConnectionRefusedError):
        return NotReachableError(
            f"koordlet is not running: nobody listens on {path}, which an earlier one left. "
            "Start it with `systemctl start koordlet`, look at `systemctl status koordlet`."
        )
    if isinstance(error, PermissionError):
        return NoAccessError(
            f"no permission to open {path}: only root and members of the socket's group may. "
            f"Use sudo, or see `ls -l {path}` for the group to join."
        )
    return NotReachableError(
        f"cannot connect to {path}: {error.strerror or error}. Look at `systemctl status koordlet`."
    )
