"""What is wrong: out of what a daemon has left (``tests/history/scene``), and of one that runs."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterable
from pathlib import Path

import pytest

from koordlet.actuator.journal.journal import FILE_NAME, Journal, Original
from koordlet.actuator.journal.lines import Intent
from koordlet.actuator.sharing import shared_with
from koordlet.admin.blame import culprit_title
from koordlet.admin.daemon import InvalidError, NotFoundError
from koordlet.cli.main import Exit, main
from koordlet.decision.metrics import CPU_WAIT, POD_CPU_THROTTLED, POD_CPU_USAGE, POD_PSI, Metric
from koordlet.decision.record import Kind, PodKind, Record
from koordlet.decision.resource import Resource
from koordlet.decision.why import Why
from koordlet.diagnosis import look
from koordlet.diagnosis.explained import Known, explained, meanings_of
from koordlet.diagnosis.held import Changed, held
from koordlet.diagnosis.targets import completed
from koordlet.diagnosis.waiting import waiting
from koordlet.diagnosis.who import Who
from koordlet.diagnosis.why import why
from koordlet.history.disk import remains
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.proc.files import boot_id
from koordlet.report.decisions import DecisionLog
from koordlet.tsdb.store import Store
from tests.daemon.world import APPLICATIONS, CPUS, World, suppress
from tests.history.scene import END, LIMITED_S, START, make

TROUBLE = f"@{START + 13 * 60:.0f}"
BEFORE = f"@{START - 600:.0f}"
LIMITED = f"@{START + LIMITED_S + 30:.0f}"
WHOLE = ["--from", f"@{START:.0f}", "--to", f"@{END:.0f}"]
SLOWED = "to 1,024 MiB of memory, beyond which it is slowed down"
Sample = tuple[Metric, tuple[str, ...], float, float]
QUOTA = ("be", str(Resource.CPU_QUOTA_US))


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("state")
    return make(directory)


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        (
            ["why", "--at", TROUBLE],
            [
                "shop/web-0 waits 60 % of its time for a CPU, 62 % of it because of batch/job-1",
                "next: koordlet report --from '2023-11-14 22:32:00' --to +2m",
                "shop/web-0 is stopped by its own CPU limit in 50 % of its periods",
            ],
        ),
        (
            ["why", "job-1", "--at", LIMITED],
            [
                "batch/job-1, BE pod in cgroup",
                "kubepods/besteffort is held to 0.84 CPUs by cpu-suppress since 2023-11-14 22:33:1",
                ", because BE may use 0.84 cores",
                "next: koordlet explain kubepods/besteffort/cpu.cfs_quota_us",
            ],
        ),
        (["why", "job-2"], ["batch/job-2, which is not here any more", "batch/job-2 is ended: "]),
        (["why"], ["Evictions of the day before:", "batch/job-2 is ended: best-effort work uses"]),
        (["why", "db-0", "--at", TROUBLE], ["Nothing is wrong that koordlet knows of"]),
        (["why", "--at", BEFORE], ["note: who suffered at 2023-11-14 22:10:00 is not known"]),
        (["why", "--at", BEFORE], ["Nothing else is known to be wrong, as far as the notes"]),
        (["why"], ["note: nothing was measured since 2023-11-14 22:49:59: this is how it was"]),
        (["why", "/kubepods/"], ["cgroup kubepods, ", "kubepods/besteffort is held to"]),
        (
            ["why", "kubepods/besteffort/pod8f2c1a5e-0000-4000-8000-000000000003/a"],
            ["batch/job-1, BE pod in cgroup"],
        ),
        (["explain", "job-2"], ["Evictions of the last day:", "batch/job-2 is ended: "]),
        (["explain", "web-0"], ["shop/web-0 waits for a CPU because of batch/job-2"]),
        (["explain", "cpu-suppress"], ["BE may use 0.84 cores"]),
        (["explain", "job-1"], ["`koordlet why job-1` says what holds it from above"]),
        (["events", "--kind", "eviction"], ["eviction       kubepods/besteffort/pod8f2c1a5e-"]),
        (["events", "--subject", "job-2"], ["shop/web-0 waits for a CPU because of batch/job-2"]),
    ],
)
def test_without_a_daemon(
    asked: list[str], lines: list[str], state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked, "--state-dir", str(state)]) == Exit.OK
    told = capsys.readouterr().out
    for line in lines:
        assert line in told, told


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        (["why", "job", "--at", TROUBLE], Exit.BAD, "may be one of 2: batch/job-1, batch/job-2"),
        (["why", "wbe-0"], Exit.BAD, 'did you mean "web-0"? known: backup'),
        (["explain", "jbo-1"], Exit.BAD, 'did you mean "job-1"? known: backup'),
        (["why", "nobody"], Exit.BAD, "known: backup, batch/job-1, shop/db-0, shop/web-0"),
        (["why", "--at", "soon"], Exit.USAGE, "--at 'soon' is no time"),
        (["explain", "nobody"], Exit.BAD, "'nobody' is no pod"),
        (["events", "--kind", "evicton"], Exit.USAGE, 'did you mean "eviction"?'),
        (["events", "--follow"], Exit.USAGE, "--follow needs a daemon"),
    ],
)
def test_what_is_refused(
    asked: list[str], code: Exit, text: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked, "--state-dir", str(state)]) == code
    assert text in capsys.readouterr().err


def test_damaged_history_is_named(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither shown as 0 nor as the mean of what is left without a word."""
    shutil.copytree(state, tmp_path, dirs_exist_ok=True)
    log = next((tmp_path / "decisions").iterdir())
    head, tail = log.read_bytes().split(b"\n", 1)
    log.write_bytes(head + b"\n{nonsense}\n" + tail + b'{"torn')
    segment = sorted((tmp_path / "tsdb").glob("*.kts"))[-1]
    content = bytearray(segment.read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    segment.write_bytes(content)
    where = ["--state-dir", str(tmp_path)]
    assert main(["why", "--at", TROUBLE, "-o", "json", *where]) == Exit.OK
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert "damaged, and left out: 1 line of the decision log" in notes
    assert any(segment.name in each for each in notes)
    for asked in (["query", "node_cpu_usage", *WHOLE], ["top", "--at", TROUBLE]):
        assert main([*asked, *where]) == Exit.OK
        error = f"not in this answer, because it is damaged: {segment.name}"
        assert error in capsys.readouterr().err
    assert main(["events", *where]) == Exit.OK
    assert "damaged, and left out: 1 line of the decision log" in capsys.readouterr().err
    assert main(["events", "--kind", "config", *where]) == Exit.OK
    told = capsys.readouterr()
    assert not told.out and "no such event" in told.err


def test_the_last_minute_of_a_dead_daemon_is_in_its_log_alone(tmp_path: Path, state: Path) -> None:
    """Its store is written once or twice a minute. With ``--at`` all of the minute is meant."""
    shutil.copytree(state, tmp_path, dirs_exist_ok=True)
    log = DecisionLog(str(tmp_path / "decisions"))
    text = "batch/job-9 is ended: late"
    log.append([Record(END + 30.0, Kind.EVICTION, "memory-evict", Why("r", text), "gone")])
    log.close()
    left = remains(str(tmp_path / "tsdb"), str(tmp_path / "decisions"))
    for at in (None, END):
        assert why(left, "", END + 3600.0, at).ended[0].why.text == text
    assert all(each.why.text != text for each in why(left, "", END + 3600.0, START + 60.0).ended)


@pytest.mark.parametrize("asked", [["why"], ["events"], ["query", "node_cpu_usage", *WHOLE]])
def test_a_daemon_that_hangs_counts_as_dead(
    asked: list[str],
    state: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The kernel takes connections for it."""
    monkeypatch.setattr("koordlet.admin.client.CALL_TIMEOUT_S", 0.05)
    path = tmp_path / "hangs.sock"
    config = tmp_path / "koordlet.toml"
    config.write_text(f'[paths]\nstate_dir = "{state}"\n[api]\nsocket = "{path}"\n')
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        assert main([*asked, "--config", str(config)]) == Exit.OK
        told = capsys.readouterr()
        assert told.out and "it takes too long" in told.err and "what it has left" in told.err
        assert main([*asked, "--socket", str(path)]) == Exit.NOT_REACHABLE


def test_one_half_of_what_was_left(tmp_path: Path, state: Path) -> None:
    (tmp_path / "decisions").symlink_to(state / "decisions")
    left = remains(str(tmp_path / "tsdb"), str(tmp_path / "decisions"))
    assert left.log.files and "cannot be read" in left.notes[0]


def test_the_journal_of_a_dead_daemon_says_what_is_in_force(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One value went back since it was decided, of the other the log knows nothing."""
    shutil.copytree(state, tmp_path, dirs_exist_ok=True)
    journal = Journal(str(tmp_path / FILE_NAME), boot_id=boot_id(LinuxHost()))
    kept = Original("be", Resource.CPU_QUOTA_US, "/be", 42, b"-1", -1, "cpu-suppress", START)
    journal.begin([kept], [Intent(kept.cgroup, kept.resource, (50_000,), "cpu-suppress")])
    journal.close()
    assert main(["why", "-o", "json", "--state-dir", str(tmp_path)]) == Exit.OK
    (only,) = json.loads(capsys.readouterr().out)["held"]
    assert (only["cgroup"], only["what"]) == ("be", "to 0.5 CPUs")
    assert only["because"] == "the decision log does not say why any more"


def decided(result: str, wanted: int | str = 100_000, resource: str = QUOTA[1]) -> Record:
    return Record(
        1.0, Kind.WRITE, "o", Why("r", "so."), "be", resource, wanted=wanted, result=result
    )


@pytest.mark.parametrize(
    ("record", "changed", "what"),
    [
        (decided("written"), None, ["to 1 CPU"]),
        (decided("written"), {}, []),
        (decided("written"), {QUOTA: Changed("o", 100_000, 1.0)}, ["to 1 CPU"]),
        (decided("would-write"), {}, ["to 1 CPU"]),
        (decided("answered"), {}, ["to 1 CPU"]),
        (decided("restored"), None, []),
        (decided("conflict"), None, []),
        (decided("written", -1), None, []),
        (decided("written", "2-3", "cpuset.cpus"), None, ["to the CPUs 2-3"]),
        (decided("written", "", "cpuset.cpus"), None, []),
        (decided("written", 0, "freezer.state"), None, []),
        (decided("written", 1, "freezer.state"), None, ["still: it is frozen"]),
        (decided("written", 2**30, "memory.high"), None, [SLOWED]),
        (decided("written", 5, "cpu.shares"), None, []),
    ],
)  # fmt: skip
def test_held(
    record: Record, changed: dict[tuple[str, str], Changed] | None, what: list[str]
) -> None:
    assert [each.what for each in held([record], changed)] == what


WEB, BE = (PodKind.POD, "1"), (PodKind.POD, "2")
NAMES = {
    WEB: Who(*WEB, "web-0", "shop", "LS", "kubepods/pod1"),
    BE: Who(*BE, "be-0", "demo", "BE", "kubepods/besteffort/pod2"),
}


def filled(samples: Iterable[Sample]) -> Store:
    """Values at so many seconds."""
    store = Store(None)
    for metric, labels, value, time in sorted(samples, key=lambda each: each[3]):
        column = store.series(metric.kind, tuple(zip(metric.labels, labels, strict=True)))
        store.append(round(time * 1000), [column], [value])
    return store


def psi(uid: str, percent: float, resource: str = "cpu") -> Sample:
    return POD_PSI, (uid, resource, "10", "some"), percent, 100.0


def waited(uid: str, ms_per_s: float, time: float = 100.0) -> Sample:
    return CPU_WAIT.pod_total, (uid,), ms_per_s, time


def cell(kind: str, culprit: str, ms_per_s: float, time: float = 100.0) -> Sample:
    named = {"pod_uid": "1", "culprit_kind": kind, "culprit": culprit}
    return CPU_WAIT.pod, tuple(named[name] for name in CPU_WAIT.pod.labels), ms_per_s, time


@pytest.mark.parametrize(
    ("samples", "found"),
    [
        ([], []),
        ([psi("1", 19.0)], []),
        ([psi("2", 90.0)], []),
        ([psi("1", 69.0)], [("cpu", "", None)]),
        ([psi("1", 69.0, "mem")], [("memory", "", None)]),
        # Without pressure of cgroups, as on v1.
        ([waited("1", 300.0), cell("pod", "2", 300.0)], [("cpu", "demo/be-0", 1.0)]),
        ([waited("1", 300.0), (POD_CPU_USAGE, ("1",), 2.0, 100.0)], []),
        ([waited("1", 190.0)], []),
        ([waited("2", 900.0)], []),
        # A calm second ends it as little as a bad one makes it, and a moment makes no culprit.
        ([waited("1", 500.0, 98.0), waited("1", 400.0, 99.0), waited("1", 0.0),
          cell("pod", "2", 400.0, 98.0), cell("pod", "2", 400.0, 99.0), cell("pod", "2", 0.0),
          cell("self", "", 500.0)],
         [("cpu", "demo/be-0", 800 / 1300)]),
        ([waited("1", 0.0, 98.0), waited("1", 0.0, 99.0), waited("1", 500.0)], []),
        ([waited("1", 300.0), psi("1", 3.0)], []),
        ([psi("1", 69.0), cell("pod", "2", 80.0), cell("self", "", 20.0)],
         [("cpu", "demo/be-0", 0.8)]),
        ([psi("1", 69.0), cell("pod", "2", 40.0), cell("older", "", 60.0)],
         [("cpu", "demo/be-0", 0.4)]),
        # A culprit that has stopped has no sample in the newest round.
        ([psi("1", 69.0), cell("pod", "2", 80.0, 95.0), cell("self", "", 20.0)],
         [("cpu", "its own tasks", 1.0)]),
        ([psi("1", 69.0), (POD_CPU_THROTTLED, ("1",), 0.9, 100.0), cell("throttled", "", 9.0)],
         [("limit", "", None)]),
        ([psi("1", 69.0), (POD_CPU_THROTTLED, ("1",), 0.9, 100.0), cell("pod", "2", 9.0)],
         [("limit", "", None), ("cpu", "demo/be-0", 1.0)]),
    ],
)  # fmt: skip
def test_who_suffers(samples: list[Sample], found: list[tuple[str, str, float]]) -> None:
    told = waiting((look.now(filled(samples), 101.0),), NAMES)
    assert [(each.resource, each.culprit, each.share) for each in told] == found


def test_the_worst_of_the_minute_with_its_culprit() -> None:
    """Seconds that were bad for different reasons are not mixed."""
    samples = [
        *(waited("1", 400.0, 100.0 + each) for each in range(10)),
        *(cell("self", "", 400.0, 100.0 + each) for each in range(10)),
        *(waited("1", 900.0, 145.0 + each) for each in range(5)),
        *(cell("pod", "2", 900.0, 145.0 + each) for each in range(5)),
        *((POD_CPU_USAGE, ("1",), 0.1, 100.0 + each) for each in range(60)),
    ]
    (told,) = waiting(look.around(filled(samples), 100.0), NAMES)
    assert (round(told.percent), told.culprit, told.share) == (90, "demo/be-0", 1.0)


@pytest.mark.parametrize(
    ("typed", "title"),
    [
        ("default/be0", "default/be0"),
        ("be0", "default/be0"),
        ("web", "shop/web-0"),
        ("shop/", "shop/web-0"),
        ("-0", "shop/web-0"),
        ("db", "db"),
        ("nothing", ""),
        ("", ""),
    ],
)
def test_names_are_completed(typed: str, title: str) -> None:
    assert completed(typed, ("default/be0", "shop/web-0", "db", "test/db-1")) == title


def test_several_names_are_listed() -> None:
    with pytest.raises(NotFoundError, match="may be one of 2: a/be0, b/be0"):
        completed("be0", ("b/be0", "a/be0"))


def test_explain_of_a_name_that_is_not_whole(tmp_path: Path) -> None:
    log = DecisionLog(str(tmp_path))
    log.append(
        [Record(1.0, Kind.WRITE, "o", Why("r", "t"), "kubepods/besteffort/pod2", "cpu.idle")]
    )
    known = Known(NAMES, meanings_of(NAMES), ("o",))
    found = explained(log.extent(), known, "be-0", 5, 100.0)
    assert found.matched == "demo/be-0, pod in cgroup kubepods/besteffort/pod2"
    assert len(found.decisions) == 1
    with pytest.raises(NotFoundError, match="known: demo/be-0, shop/web-0"):
        explained(log.extent(), known, "x", 5, 100.0)
    log.close()


@pytest.mark.parametrize(
    ("cgroup", "resource", "text"),
    [
        ("kubepods.slice/kubepods-besteffort.slice", "cpu.cfs_quota_us", "once a minute"),
        ("kubepods/besteffort", "cpu.cfs_quota_us", ""),
        (
            "kubepods/besteffort/pod" + "8f2c1a5e-0000-4000-8000-000000000001",
            "memory.min",
            "resize",
        ),
        ("kubepods/besteffort", "memory.oom.group", ""),
        ("system.slice/web.service", "cpu.cfs_quota_us", "set-property"),
        ("batch", "cpu.cfs_quota_us", ""),
    ],
)
def test_who_else_writes(cgroup: str, resource: str, text: str) -> None:
    told = shared_with(cgroup, Resource(resource))
    assert text in told and bool(told) is bool(text)


def test_the_words_for_nobody_are_those_of_the_resource() -> None:
    assert "CPU" in culprit_title("idle", "") and "CPU" not in culprit_title("idle", "", "io")


def test_a_daemon_that_runs(tmp_path: Path) -> None:
    world = World(tmp_path, suppress() + APPLICATIONS)
    world.application("shop", 1.0)
    world.application("batch", CPUS)
    world.application("bare", 0.0)
    world.start()
    world.run(12)
    node, batch = world.views.why("", None)(), world.views.why("bat", None)()
    assert (node.matched, node.source) == ("the node", "")
    (quota,) = [each for each in batch.held if each.resource == Resource.CPU_QUOTA_US]
    assert (quota.cgroup, quota.owner, quota.would) == ("batch", "cpu-suppress", False)
    assert quota.what.startswith("to ") and "BE may use" in quota.because
    assert world.views.why("/batch/", None)().matched == batch.matched
    assert world.views.why("bare", None)().matched == "cgroup bare"
    for asked in (
        lambda: world.views.why("bathc", None)(),
        lambda: world.views.explain("bathc", 5)(),
        lambda: world.views.blame("bathc", 60.0)(),
        lambda: world.views.hooks("bathc"),
    ):
        with pytest.raises(NotFoundError, match='did you mean "batch"'):
            asked()
    world.views.blame("sho", 60.0)()
    with pytest.raises(NotFoundError):
        world.views.why("nobody", None)()
    with pytest.raises(InvalidError):
        world.views.events(since=0, follow=False, kinds=("nonsense",))
    world.stop()
