"""Names of cgroups are bytes. Whoever may make a cgroup below a best-effort container chooses them;
the whole daemon goes on, manages them, and shows them as harmless text."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from hypothesis import HealthCheck, example, given, reject, settings
from hypothesis import strategies as st

from koordlet.actuator.restore import restore
from koordlet.admin import wire
from koordlet.admin.pb import admin_pb2 as pb
from koordlet.cli import output
from koordlet.cli import restore as restore_command
from koordlet.cli.show import explain as explain_command
from koordlet.cli.show import status as status_command
from koordlet.decision.family import Page
from koordlet.decision.names import shown
from koordlet.decision.resource import Resource
from koordlet.engine.parts import journal_path
from koordlet.engine.restored import restore_view
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.proc.files import boot_id
from koordlet.report.page import Format, render
from koordlet.views.publish import publish
from tests.daemon.world import CPU_QOS, FEATURES, World, suppress

CPUS, QUOTA, SHARES = Resource.CPUSET_CPUS, Resource.CPU_QUOTA_US, Resource.CPU_SHARES
UID = "6553a60b-2b97-442a-b6da-a5704d81dd98"
NASTY = (
    b"\xff\xfe",
    b"caf\xe9",
    b"a b",
    b"a\\b",
    rb"a\x41",
    b"\x1b[2Jm",
    b"\t",
    "\u202egnp".encode(),
    "größe".encode(),
    b"\xed\xa0\x80",
    b'quote"s',
    b"-rf",
    b"x" * 255,
)
"""Also half a surrogate pair in UTF-8, and a text that runs from right to left."""

names = st.one_of(
    st.sampled_from(NASTY),
    st.binary(min_size=1, max_size=20),
    st.text(min_size=1, max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass")),
).filter(lambda name: not set(name) & {0, 10, 47} and name not in (b".", b".."))


@pytest.fixture(autouse=True)
def _logged_to_nowhere() -> Iterator[io.StringIO]:
    """A log that takes nothing but UTF-8."""
    log = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict")
    before = structlog.get_config()
    structlog.configure(
        processors=[output.harmless_event, structlog.processors.LogfmtRenderer()],
        logger_factory=structlog.PrintLoggerFactory(log),
    )
    yield log  # type: ignore[misc]
    structlog.configure(**before)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(layout=st.sampled_from(["v1", "hybrid", "v2"]), name=names, other=names)
@example(layout="v1", name=b"\xff\xfe", other=b"caf\xe9")
@example(layout="v2", name=b"\xff\xfe", other=b"a\\b")
@example(layout="hybrid", name=b"\xed\xa0\x80", other=b"\x1b[2Jm")
@example(layout="v2", name=b"a", other=b"cpu.max")
def test_the_whole_daemon_with_any_name(
    tmp_path_factory: pytest.TempPathFactory, layout: str, name: bytes, other: bytes
) -> None:
    play(tmp_path_factory.mktemp("names"), layout, os.fsdecode(name), os.fsdecode(other))


def play(directory: Path, layout: str, name: str, other: str) -> None:
    policy = "cfsQuota" if layout == "v2" and len(name) % 2 else "cpuset"
    applications = (
        '\n[[applications]]\nname = "batch"\ncgroup = "batch"\nqos = "BE"\n'
        '[[applications]]\nname = "shop"\ncgroup = "shop"\nqos = "LS"\n'
    )
    world = World(directory, applications + suppress(policy) + CPU_QOS, layout)
    host = world.host
    container = host.make_pod(containers=("c0ffee",)).containers[0]
    made = [f"{container}/{name}", f"{container}/{name}/{other}", f"batch/{other}", f"shop/{name}"]
    made = list(dict.fromkeys(made))
    host.make_cgroup("batch")
    for cgroup in made:
        try:
            host.make_cgroup(cgroup)
        except FileExistsError:
            reject()  # a file of the kernel has the name, so no cgroup ever has it
    cgroups = Cgroups(host, detect(host))
    watched = [*made, container, "batch", "shop"]
    before = values(cgroups, watched)
    processes = [host.spawn(f"batch/{other}", demand_cores=3.0, threads=4)]
    processes.append(host.spawn(container, demand_cores=2.0, threads=4))
    processes.append(host.spawn(f"shop/{name}", demand_cores=3.0, threads=4))
    try:
        world.start(FEATURES)
        world.run(3)
        late = f"{container}/late-{os.fsdecode(os.fsencode(other)[:200])}"
        host.make_cgroup(late)
        world.run(2)
        assert not world.parts.problems, world.parts.problems
        managed = {each.cgroup for each in world.parts.actuator.owned()}
        assert "batch" in managed
        if policy == "cpuset" and layout != "v2":
            # Below a list of ours everything with a list of its own follows.
            assert {f"{container}/{name}", f"batch/{other}"} <= managed
        look_at_everything(world, max(managed, key=lambda each: each.startswith("batch/")))
        world.stop()
        world.start(FEATURES)
        world.run(1)
        look_at_everything(world, "batch")
    finally:
        world.stop()
    report = restore(
        Knobs(host, cgroups),
        journal_path(world.loaded.config),
        boot_id=boot_id(host),
        now=host.monotonic(),
        time=host.time(),
    )
    assert report.ok, report
    view = restore_view(report, dry_run=False)
    check_view(pb.RestoreView(), view)
    check_lines(restore_command.lines(view))
    host.remove_cgroup(late)
    assert values(cgroups, watched) == before


def values(cgroups: Cgroups, watched: list[str]) -> dict[tuple[str, Resource], bytes]:
    """On v2 an empty CPU list comes back as that of all CPUs (docs/concepts/actuator.md)."""
    found = {}
    cpus = CPUS if "cpuset" in cgroups.layout.v1 else Resource.CPUSET_CPUS_EFFECTIVE
    for cgroup in watched:
        for resource in (cpus, QUOTA, SHARES, Resource.CPU_IDLE):
            with contextlib.suppress(Exception):
                found[cgroup, resource] = cgroups.read_raw(cgroup, resource)
    return found


def look_at_everything(world: World, cgroup: str) -> None:
    """All that leaves the daemon."""
    views = world.views
    check_view(pb.StatusView(), views.status())
    check_lines(status_command.lines(views.status(), verbose=True))
    check_view(pb.DoctorView(), views.doctor()())
    check_view(pb.StrategiesView(), views.strategies("")())
    for application in world.parts.state.applications():
        check_view(pb.HooksView(), views.hooks(application.name))
    check_view(pb.TopView(), views.top()())
    check_view(pb.RestoreView(), views.restore(dry_run=True))
    for pod in views.pods()():
        check_view(pb.PodView(), pod)
    for event in world.parts.events.recent():
        check_view(pb.EventView(), event)
    for target in (shown(cgroup), cgroup):  # as koordlet shows it, and as a shell completes it
        answer = views.explain(target, 20)()
        check_view(pb.ExplainView(), answer)
        check_lines(explain_command.lines(answer))
        assert any(decision.cgroup == shown(cgroup) for decision in answer.decisions)
    check_view(pb.ExplainView(), views.explain("node", 200)())
    publish(world.engine, views)
    page = b"".join(render(world.parts.metrics, Format.TEXT, Page.INTERNAL, Page.EXTERNAL))
    page.decode()
    world.parts.decisions.flush()
    list(world.parts.decisions.read())


def check_view(message: Any, view: msgspec.Struct) -> None:
    """It goes through protobuf, JSON and YAML."""
    wire.to_message(message, view).SerializeToString()
    output.document(view, "json").encode()
    output.document(view, "yaml").encode()


def check_lines(found: list[str]) -> None:
    for line in found:
        assert line.isprintable() and line.encode().decode() == line


@pytest.mark.parametrize("layout", ["v1", "v2"])
def test_a_second_writer_of_such_a_group_is_shown(
    tmp_path: Path, layout: str, make_world: Callable[..., World]
) -> None:
    batch = '\n[[applications]]\nname = "b\u202e"\ncgroup = "ba tch/sp\\\\ace"\nqos = "BE"\n'
    world = make_world(batch + suppress("cfsQuota") + CPU_QOS, layout)
    world.application("ba tch/sp\\ace", 3.0)
    world.start()
    world.run(2)
    world.parts.cgroups.write("ba tch/sp\\ace", QUOTA, 123_000)
    world.run(1)
    look_at_everything(world, "ba tch/sp\\ace")
    (conflict,) = world.views.status().conflicts
    assert conflict.cgroup == r"ba tch/sp\\ace" and conflict.path.count(r"sp\\ace") == 1


def test_a_tree_of_pods_below_such_a_group(make_world: Callable[..., World]) -> None:
    world = make_world(suppress("cpuset") + CPU_QOS, "v1")
    top = "lxc\udcff \\x"
    for cgroup in (f"{top}/kubepods", f"{top}/kubepods/besteffort/pod{UID}/c0ffee"):
        world.host.make_cgroup(cgroup)
    world.host.spawn(f"{top}/kubepods/besteffort/pod{UID}/c0ffee", demand_cores=3.0, threads=4)
    world.start()
    world.run(3)
    look_at_everything(world, f"{top}/kubepods/besteffort")
    (pod,) = world.views.pods()()
    assert pod.cgroup == rf"lxc\xff \\x/kubepods/besteffort/pod{UID}"
