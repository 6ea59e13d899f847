"""What the local API asks of the daemon, whoever that is: the real one, or a fake one in tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:  # loaded when somebody asks
    from koordlet.admin.blame import BlameView, WhyView
    from koordlet.admin.devices import DevicesView
    from koordlet.admin.model.configuration import ConfigView, ReloadView
    from koordlet.admin.model.doctor import DoctorView
    from koordlet.admin.model.events import EventView, ExplainView
    from koordlet.admin.model.nri import NriView
    from koordlet.admin.model.status import StatusView
    from koordlet.admin.model.usage import PodView, TopView
    from koordlet.admin.prediction import PredictView
    from koordlet.admin.ranges import QueryView, RangeView
    from koordlet.admin.runtime import HooksView
    from koordlet.admin.strategies import StrategiesView
    from koordlet.admin.undo import PausedView, RestoreView, ResumedView
    from koordlet.admin.worker import Worker
    from koordlet.kernel.background import Pause

T_co = TypeVar("T_co", covariant=True)


class NotFoundError(Exception):
    """The caller asked about something that does not exist; the text names what does."""


class InvalidError(Exception):
    """The caller's arguments make no sense; the text says which and what would."""


class Lookup(Protocol[T_co]):
    """The part of an answer that takes long: for the worker thread. It touches nothing that the
    event loop changes, and raises the same errors as the call that it came from."""

    def __call__(self, pause: Pause = ...) -> T_co: ...


class DaemonApi(Protocol):
    """What the API server needs of the daemon. All calls come on the daemon's event loop and take
    a millisecond or two; what would take longer is a ``Lookup``. Errors for the caller are
    NotFoundError and InvalidError; others are defects, answered as INTERNAL."""

    @property
    def worker(self) -> Worker: ...

    def look_up_status(self) -> Lookup[StatusView]: ...
    def pods(self) -> Lookup[tuple[PodView, ...]]: ...
    def top(self) -> Lookup[TopView]: ...

    def explain(self, target: str, limit: int) -> Lookup[ExplainView]:
        """``target``: as ExplainRequest in the proto has it. Raises NotFoundError."""
        ...

    def why(self, target: str, at: float | None) -> Lookup[WhyView]:
        """``target``: as WhyRequest in the proto has it. Raises NotFoundError and InvalidError."""
        ...

    def events(
        self, *, since: float, follow: bool, kinds: Collection[str] = (), subject: str = ""
    ) -> AsyncIterator[EventView]:
        """Events from the unix time ``since`` on; with ``follow`` never ends by itself. ``kinds``
        and ``subject``: as EventsRequest in the proto has them. Raises InvalidError."""
        ...

    def query(
        self,
        kind: str,
        match: Mapping[str, str],
        window_s: float,
        aggregate: str,
        until: float | None = None,
    ) -> Lookup[QueryView]:
        """``match``: label -> value; others match everything. ``until``: end of the window, unix
        seconds; None: now. Raises InvalidError."""
        ...

    def query_range(
        self,
        kind: str,
        match: Mapping[str, str],
        start: float,
        end: float,
        step_s: float,
        aggregate: str,
    ) -> AsyncIterator[RangeView]:
        """The pieces of one answer. Raises InvalidError with the first or a later one."""
        ...

    def blame(self, target: str, window_s: float) -> Lookup[BlameView]:
        """``target``: as BlameRequest in the proto has it. Raises NotFoundError and
        InvalidError."""
        ...

    def doctor(self) -> Lookup[DoctorView]: ...

    def hooks(self, target: str) -> HooksView:
        """``target``: as HooksRequest in the proto has it. Raises NotFoundError."""
        ...

    def nri(self) -> NriView: ...

    def strategies(self, name: str) -> Lookup[StrategiesView]:
        """All for an empty ``name``. Raises NotFoundError."""
        ...

    def devices(self) -> DevicesView: ...

    def predict(self, target: str, window_s: float) -> Lookup[PredictView]:
        """``target``: as PredictRequest in the proto has it. Raises NotFoundError and
        InvalidError."""
        ...

    def restore(self, *, dry_run: bool, force: bool = False, by: str = "") -> RestoreView:
        """Puts every journalled value back; without ``dry_run`` that pauses everything, or the
        next tick would write it again. ``force``: as RestoreRequest in the proto has it."""
        ...

    def pause(
        self,
        owners: Sequence[str],
        cgroups: Sequence[str],
        *,
        for_s: float | None,
        reason: str,
        by: str,
    ) -> PausedView:
        """Everything, where nothing is named. ``cgroups``: paths, pods or applications. ``by``:
        who asks, in words. Raises NotFoundError and InvalidError."""
        ...

    def resume(self, owners: Sequence[str], cgroups: Sequence[str], *, by: str) -> ResumedView:
        """Ends every pause, where nothing is named. Raises NotFoundError."""
        ...

    def config(self) -> ConfigView: ...
    def reload(self) -> ReloadView: ...
