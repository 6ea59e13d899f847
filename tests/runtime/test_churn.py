"""Many pods at once while one of those on the way to them goes away and comes back, again and
again: every pod ends as asked, none is lost, nothing is left behind."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import cycle, islice
from typing import TypeVar

import pytest

from tests.runtime import cases, machine
from tests.runtime.cases import CASES, Case, Found, found, wanted
from tests.runtime.containerd import Containerd
from tests.runtime.cri import Runtime
from tests.runtime.kubelet import Kubelet, Pod, PodSpec
from tests.runtime.ways import Setup, Way, running

pytestmark = [pytest.mark.runtime, pytest.mark.timeout(240)]

PODS = {"1.7": 24, "2.x": 50}
_WORKERS = 8
_POD_TIMEOUT_S = 60.0
_ALL_TIMEOUT_S = 80.0
_TIMES = 3
_CALM_S = 0.7
_FORGOTTEN = "cannot delete running task"
T = TypeVar("T")
S = TypeVar("S")


def _restart_koordlet(setup: Setup) -> None:
    setup.koordlet.process.end()
    setup.koordlet.start()


def _kill_koordlet(setup: Setup) -> None:
    setup.koordlet.process.end(signal.SIGKILL)
    setup.koordlet.start()


def _restart_containerd(setup: Setup) -> None:
    setup.containerd.restart()


def _kill_proxy(setup: Setup) -> None:
    assert setup.proxy is not None
    setup.proxy.process.end(signal.SIGKILL)
    setup.proxy.start()


@pytest.mark.parametrize(
    ("way", "disturb"),
    [
        (Way.RECONCILE, _restart_koordlet),
        (Way.NRI, _kill_koordlet),
        (Way.NRI, _restart_containerd),
        (Way.PROXY, _kill_koordlet),
        (Way.PROXY, _restart_containerd),
        (Way.PROXY, _kill_proxy),
    ],
    ids=lambda value: str(getattr(value, "__name__", value)).strip("_"),
)
def test_every_pod_ends_as_asked(
    containerd: Containerd, way: Way, disturb: Callable[[Setup], None]
) -> None:
    # A proxy tells of a pod while it is made, and never again: koordlet lists what it missed.
    lists = way is Way.PROXY
    with (
        running(containerd, way, lists=lists, node=cases.NODE) as setup,
        Runtime(setup.address) as runtime,
    ):
        kubelet = Kubelet(runtime, _POD_TIMEOUT_S)
        asked = list(islice(cycle(CASES), PODS[containerd.version]))
        try:
            pods = _amid(disturb, setup, runtime, kubelet.run_pod, [case.fresh() for case in asked])
            _check_presence(runtime, pods)
            _check_values(asked, pods)
            if disturb is _kill_proxy:  # nobody but the proxy's hook server can give variables
                _check_variables(runtime, asked, pods)
            _remove(disturb, setup, runtime, kubelet, [pod.spec for pod in pods])
            assert (runtime.sandboxes(), runtime.containers()) == ([], [])
            assert machine.pod_cgroups() == []
            machine.until(lambda: not machine.processes(), "all containers end")
            if disturb not in (_restart_containerd, _kill_proxy):
                # containerd, either line, leaves the shim, empty, when a call that starts
                # something is cut off: by its own end, or by that of who called.
                machine.until(lambda: not machine.shims(), "all shims end")
        finally:
            if not containerd.process.is_running:
                containerd.start()
            with Runtime(containerd.address) as direct:
                Kubelet(direct).remove_all()
            machine.end_shims()


def _remove(
    disturb: Callable[[Setup], None],
    setup: Setup,
    runtime: Runtime,
    kubelet: Kubelet,
    specs: Sequence[PodSpec],
) -> None:
    try:
        _amid(disturb, setup, runtime, kubelet.remove_pod, specs)
    except TimeoutError as error:
        if disturb is not _kill_proxy or _FORGOTTEN not in str(error.__cause__):
            raise
        # containerd 1.7 forgets that a container runs when the call that started it was cut off,
        # by whoever made it, and then refuses to remove it. It finds out when it starts anew.
        setup.containerd.restart()
        for spec in specs:
            kubelet.remove_pod(spec)


def _amid(
    disturb: Callable[[Setup], None],
    setup: Setup,
    runtime: Runtime,
    function: Callable[[T], S],
    items: Sequence[T],
) -> list[S]:
    """``function`` of all items in parallel, and meanwhile some disturbances. They are made here
    and not in a thread: a process ends with the thread that started it (PR_SET_PDEATHSIG)."""
    with ThreadPoolExecutor(_WORKERS) as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            for _ in range(_TIMES):
                wait(futures, timeout=_CALM_S)
                disturb(setup)
            _, left = wait(futures, timeout=_ALL_TIMEOUT_S)
            assert not left, f"{len(left)} of {len(items)} pods are stuck: is containerd?"
        except BaseException:
            # Who asks a runtime that does not answer gets an error, and nobody asks anew.
            pool.shutdown(wait=False, cancel_futures=True)
            setup.containerd.process.end(signal.SIGKILL)
            runtime.close()
            raise
    return [future.result() for future in futures]


def _check_presence(runtime: Runtime, pods: Sequence[Pod]) -> None:
    """One ready sandbox and one running container for each pod, and those that it was told."""
    ready = sorted((s.uid, s.id) for s in runtime.sandboxes() if s.ready)
    assert ready == sorted((pod.spec.uid, pod.sandbox) for pod in pods)
    running = sorted((c.sandbox, c.id) for c in runtime.containers() if c.running)
    assert running == sorted((pod.sandbox, pod.containers["main"]) for pod in pods)


def _check_values(asked: Sequence[Case], pods: Sequence[Pod]) -> None:
    """What a pod missed while somebody was away, it has soon after."""

    def wrong() -> dict[str, tuple[Found, Found]]:
        pairs = zip(asked, pods, strict=True)
        both = ((pod, found(pod, case), wanted(case)) for case, pod in pairs)
        return {pod.spec.name: (has, wants) for pod, has, wants in both if has != wants}

    with suppress(TimeoutError):  # the comparison below shows more
        machine.until(lambda: not wrong(), "all pods have their values")
    assert wrong() == {}


def _check_variables(runtime: Runtime, asked: Sequence[Case], pods: Sequence[Pod]) -> None:
    for case, pod in zip(asked, pods, strict=True):
        if case.env:
            assert case.env.items() <= runtime.environment(pod.containers["main"]).items()
