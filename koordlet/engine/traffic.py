"""Traffic plans on their way to the kernel, in a thread of their own: whoever configures the
network at the same time can keep a netlink call waiting."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import msgspec
import structlog

from koordlet.actuator.outcome import Outcome, is_news, signature
from koordlet.actuator.traffic.devices import FILE_NAME, Devices
from koordlet.actuator.traffic.writer import Wanted, apply, restore
from koordlet.config.part_tables import options_in
from koordlet.config.schema import Config
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability, Snapshot
from koordlet.decision.traffic import TrafficPlan
from koordlet.hooks.traffic import HOOK, traffic
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host
from koordlet.kernel.probe.net import probe_traffic

log = structlog.get_logger()

PART = "network-qos"
CHECK_EVERY_S = 60.0
"""How often the kernel is compared with a plan that stays the same; routes are looked at then."""
FIRST_RETRY_S = 2.0
"""After so long what the kernel refused is tried again, then after twice as long, and so on up to
``CHECK_EVERY_S``: until then rates of before and of now stand side by side."""
TRY_AGAIN_S = 600.0
"""After so long it is tried again what the kernel lacked: a module may have been loaded."""

_DIVIDED = frozenset({Result.WRITTEN, Result.IN_FORCE, Result.WOULD_WRITE})


class Want(msgspec.Struct, frozen=True):
    """``net_cls``: pods have a ``net_cls.classid``. ``places``: of members that are known by their
    cgroup; one that is made anew, as by a restart of a unit, has another."""

    plan: TrafficPlan | None
    devices: tuple[str, ...] = ()
    net_cls: bool = False
    observe: bool = False
    places: tuple[tuple[int, int] | None, ...] = ()


class Traffic:
    """``capabilities``: what the kernel has for it, empty until a plan was wanted.
    ``problems``: where to tell that it cannot be done at all. ``undivided``: why no device is
    divided although there is a plan, empty while one is."""

    def __init__(
        self, host: Host, layout: Layout, state_dir: str, boot_id: str, problems: dict[str, str]
    ) -> None:
        self._host = host
        self._layout = layout
        self._problems = problems
        self._path = devices_path(state_dir)
        self._boot_id = boot_id
        self._devices: Devices | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._job: Future[tuple[Outcome, ...]] | None = None
        self._want: Want | None = None
        self._done: Want | None = None
        self._checked = -math.inf
        self._retry_s = 0.0
        self._tried = -math.inf
        self._last_signatures: Mapping[tuple[str, str], tuple[object, ...]] = {}
        self.capabilities: tuple[Capability, ...] = ()
        self.undivided = ""

    def want(self, want: Want) -> None:
        """From now on. Returns at once."""
        members = want.plan.members if want.plan is not None else ()
        places = tuple(self._place(each.cgroup) for each in members if not each.ips)
        self._want = msgspec.structs.replace(want, places=places)

    @property
    def plan(self) -> TrafficPlan | None:
        """How the link shall be divided at present."""
        return self._want.plan if self._want is not None else None

    @property
    def has_divided(self) -> bool:
        """Whether something of ours is on a device, also of an earlier run."""
        try:
            return not self._known().is_empty
        except OSError:
            return False  # whoever works on it says so

    def turn(self, now: float, time: float) -> tuple[Outcome, ...]:
        """Begin what is due; what was finished since the last call and is worth telling. Returns
        at once. ``now``: monotonic seconds, ``time``: unix seconds.

        Until ``want`` was called once, what an earlier daemon has divided stays as it is.
        """
        outcomes: tuple[Outcome, ...] = ()
        if self._job is not None:
            if not self._job.done():
                return ()
            outcomes = self._finish()
        want = self._want
        if want is None:
            return outcomes
        wait_s = self._retry_s or CHECK_EVERY_S
        due = want != self._done or now - self._checked >= wait_s
        if due and not self._idle(want):
            self._done, self._checked = want, now
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "traffic")
            self._job = self._pool.submit(self._work, want, now, time)
        return outcomes

    def restore(self, time: float, *, dry_run: bool = False) -> tuple[Outcome, ...]:
        """Take everything of ours away, once what is under way has ended, and do nothing until
        ``want`` is called again. Raises OSError."""
        if self._job is not None:
            wait([self._job])
        if not dry_run:
            self._job = self._done = self._devices = None
            self._want, self._last_signatures, self.undivided = None, {}, ""
        return restore_devices(self._host, self._path, self._boot_id, time, dry_run=dry_run)

    def close(self) -> None:
        """After what is under way."""
        if self._pool is not None:
            self._pool.shutdown()

    def _idle(self, want: Want) -> bool:
        """Nothing is wanted, and nothing of ours is there."""
        if want.plan is not None:
            return False
        try:
            return self._known().is_empty
        except OSError as error:
            self._problems[PART] = str(error)
            return True

    def _known(self) -> Devices:
        if self._devices is None:
            self._devices = Devices(self._path, self._boot_id)
        return self._devices

    def _finish(self) -> tuple[Outcome, ...]:
        assert self._job is not None
        job, self._job = self._job, None
        try:
            outcomes = job.result()
            self._problems.pop(PART, None)
        except OSError as error:
            self._problems[PART] = f"{error.filename or 'netlink'}: {error.strerror or error}"
            self._follow_up(refused=True)
            return ()
        except Exception as error:  # the isolation boundary: a defect of ours in that thread
            log.error("traffic classes failed", exc_info=error)
            self._problems[PART] = f"{type(error).__name__}: {error}"
            return ()
        self._follow_up(refused=any(each.result is Result.REFUSED for each in outcomes))
        self.undivided = _undivided(outcomes)
        before, self._last_signatures = (
            self._last_signatures,
            {(o.cgroup, o.resource): signature(o) for o in outcomes},
        )
        return tuple(o for o in outcomes if is_news(o, before.get((o.cgroup, o.resource))))

    def _follow_up(self, *, refused: bool) -> None:
        longer_s = min(max(2 * self._retry_s, FIRST_RETRY_S), CHECK_EVERY_S)
        self._retry_s = longer_s if refused else 0.0

    def _work(self, want: Want, now: float, time: float) -> tuple[Outcome, ...]:
        control, tables = self._host.traffic()
        with contextlib.closing(control), contextlib.closing(tables):
            has_all = self.capabilities and all(each.supported for each in self.capabilities)
            if want.plan is not None and not has_all and now - self._tried >= TRY_AGAIN_S:
                self.capabilities, self._tried = probe_traffic(), now
            features = frozenset(each.feature for each in self.capabilities if each.supported)
            wanted = Wanted(want.plan, want.devices, features, self._place, want.net_cls)
            return apply(control, tables, wanted, self._known(), time=time, observe=want.observe)

    def _place(self, cgroup: str) -> tuple[int, int] | None:
        """(depth, inode) in the unified hierarchy."""
        if self._layout.v2 is None:
            return None
        try:
            return cgroup.count("/") + 1, self._host.inode(f"{self._layout.v2}/{cgroup}")
        except OSError:
            return None


def _undivided(outcomes: Sequence[Outcome]) -> str:
    sent = [each for each in outcomes if each.resource is Resource.NET_EGRESS]
    if any(each.result in _DIVIDED for each in sent):
        return ""
    return next((each.text for each in sent if each.result is Result.REFUSED), "")


def want_of(snapshot: Snapshot, config: Config, *, observe: bool) -> Want:
    """What the hook network-qos asks for."""
    table = options_in(config.hooks, HOOK)
    return Want(
        traffic(snapshot) if table.enable else None,
        table.devices,
        net_cls=snapshot.node.has(Resource.NET_CLS_CLASSID),
        observe=observe,
    )


def devices_path(state_dir: str) -> str:
    return os.path.join(state_dir, FILE_NAME)


def restore_devices(
    host: Host, path: str, boot_id: str, time: float, *, dry_run: bool = False
) -> tuple[Outcome, ...]:
    """Take everything of ours off the devices that the file at ``path`` lists; harmless when
    repeated. Raises OSError."""
    devices = Devices(path, boot_id)
    if devices.is_empty:
        return ()
    control, tables = host.traffic()
    with contextlib.closing(control), contextlib.closing(tables):
        return restore(control, tables, devices, time=time, observe=dry_run)
