"""The API server is away: nothing changes on the node, over restarts too, and afterwards all is
right again soon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from koordlet.cluster import known
from koordlet.cluster.known import Known
from koordlet.cluster.shapes import Node, NodeSLO
from koordlet.kube import following
from koordlet.kube.objects import Metadata
from tests.cluster.conftest import Join
from tests.cluster.joined import NODE, Joined, config, definitions, kubeconfig, node, pod, running
from tests.cluster.joined import slo as slo_of
from tests.daemon.world import World
from tests.fakekube import FakeKube, serving

BE = {"koordinator.sh/qosClass": "BE"}
USE = {"enable": True, "cpuSuppressThresholdPercent": 40}


def threshold(joined: Joined) -> int | None:
    found = joined.world.engine.loaded.slo.resource_used_threshold_with_be
    return found.cpu_suppress_threshold_percent if found is not None else None


def away(kube: FakeKube) -> None:
    kube.faults.down = True
    kube.faults.cut_watches()


def settled(joined: Joined, uid: str) -> Callable[[], bool]:
    def holds() -> bool:
        found = joined.pod(uid)
        offered = joined.world.engine.node().allocatable
        return threshold(joined) == 40 and found is not None and found.qos == "BE" and bool(offered)

    return holds


def fill(joined: Joined) -> str:
    joined.put("nodes", node())
    joined.put("nodeslos", slo_of(resourceUsedThresholdWithBE=USE))
    uid: str = joined.put("pods", pod("be", labels=BE))["metadata"]["uid"]
    joined.world.host.make_pod(uid=uid, qos="burstable")
    return uid


def test_an_outage_changes_nothing_and_its_end_brings_what_was_missed(join: Join) -> None:
    async def main() -> None:
        async with join() as joined:
            uid = fill(joined)
            await joined.sees(settled(joined, uid))
            away(joined.kube)
            await joined.sees(lambda: not joined.world.views.cluster().connected)
            joined.change("nodeslos", NODE, {"spec": {"resourceUsedThresholdWithBE": {
                "cpuSuppressThresholdPercent": 50}}})  # fmt: skip
            joined.change("pods", "be", {"metadata": {"labels": {
                "koordinator.sh/qosClass": "LS"}}}, "default")  # fmt: skip
            await joined.sees(lambda: joined.object("NodeSLO").state == "last known")
            assert settled(joined, uid)()
            await joined.sees(lambda: (joined.object("Node").age_s or 0) > 0)
            joined.world.host.advance(60)
            texts = joined.world.views.status().verdict.reasons
            assert any("API server is not heard" in text for text in texts)
            joined.kube.faults.down = False
            await joined.sees(lambda: threshold(joined) == 50 and joined.pod(uid).qos == "LS")
            await joined.sees(lambda: joined.object("Pod").state == "watched")
            assert joined.object("Pod").age_s == 0

    asyncio.run(main())


def test_the_server_is_looked_for_by_one_and_never_seldom() -> None:
    """What makes a node right 5 s after an outage: a look takes as long as the longest wait, then
    the others follow."""
    longest_s = following.LOOK_S + following.FOLLOW_S + 1.0
    assert longest_s < 5.0


def test_a_restart_without_the_server_goes_on_with_what_was_known(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    async def main() -> None:
        async with serving(*definitions()) as kube:
            world = make_world(config(kubeconfig(tmp_path, kube.url)))
            async with running(world, kube) as joined:
                uid = fill(joined)
                await joined.sees(settled(joined, uid))
                path = Path(joined.member.options.state_dir) / known.FILE_NAME
                await joined.sees(lambda: path.exists() and b"2500" in path.read_bytes())
                await joined.sees(lambda: b'"nodes' not in path.read_bytes())
                await joined.sees(lambda: joined.member.known.slo is not None)
            away(kube)
            world.stop()
            async with running(world, kube) as joined:
                joined.world.answer()
                assert settled(joined, uid)()
                assert joined.object("NodeSLO").state == "last known"
                await joined.sees(lambda: joined.membership.member is not None)
                await joined.sees(lambda: bool(joined.member.mirrors()))
                await joined.sees(lambda: (joined.object("Node").age_s or 0) > 0)
                assert settled(joined, uid)()

    asyncio.run(main())


def test_what_was_deleted_while_nobody_looked_stays_and_is_said(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    async def main() -> None:
        async with serving(*definitions()) as kube:
            world = make_world(config(kubeconfig(tmp_path, kube.url)))
            async with running(world, kube) as joined:
                uid = fill(joined)
                await joined.sees(settled(joined, uid))
                await joined.sees(lambda: joined.member.known.slo is not None)
            world.stop()
            joined.delete("nodeslos", NODE)
            async with running(world, kube) as joined:
                await joined.sees(lambda: joined.object("NodeSLO").state == "deleted")
                await joined.sees(lambda: joined.member.nodes.synced)  # one may be listed first
                assert threshold(joined) == 40
                checks = {each.name: each for each in world.views.doctor()().checks}
                assert checks["cluster: NodeSLO"].state == "limited"
                assert checks["cluster: Node"].state == "ok"
                assert checks["cluster: API server"].why == f"{kube.url}, as {NODE}"

    asyncio.run(main())


def test_without_credentials_it_says_so_and_tries_again(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    async def main() -> None:
        async with serving(*definitions()) as kube:
            world = make_world(config(tmp_path / "missing"))
            async with running(world, kube) as joined:
                await joined.sees(lambda: "cluster" in world.parts.problems)
                assert "missing" in world.parts.problems["cluster"]
                joined.world.engine.tick()

    asyncio.run(main())


def objects(name: str = NODE) -> Known:
    meta = Metadata(name=name, labels={"a": "b"})
    return Known(name, 1000.5, Node(metadata=meta), NodeSLO(metadata=meta, spec={"x": {"y": 1}}))


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    directory = str(tmp_path / "cluster")
    assert known.load(directory, NODE) == known.Loaded(Known(NODE))
    assert known.save(directory, objects()) == ""
    assert known.load(directory, NODE) == known.Loaded(objects())
    assert known.load(directory, "another") == known.Loaded(Known("another"))


def test_a_damaged_file_says_so_and_is_nothing(tmp_path: Path) -> None:
    directory = str(tmp_path)
    path = tmp_path / known.FILE_NAME
    known.save(directory, objects())
    whole = path.read_bytes()
    deep = b'{"slo":{"spec":{"a":' + b"[" * 10**6 + b"]" * 10**6 + b"}}}"
    for damaged in (
        b"",
        known._head(deep) + deep,
        whole[:-3],
        whole.replace(b"1000", b"2000"),
        b"0" * (known.MOST_BYTES + 1),
    ):
        path.write_bytes(damaged)
        found = known.load(directory, NODE)
        assert found.known == Known(NODE)
        assert str(path) in found.damage


def test_more_than_is_kept_is_not_written(tmp_path: Path) -> None:
    known.save(str(tmp_path), objects())
    large = Known(NODE, 1.0, None, NodeSLO(spec={"x": "y" * known.MOST_BYTES}))
    assert "more than" in known.save(str(tmp_path), large)
    assert known.load(str(tmp_path), NODE).known == objects()


def test_a_disk_that_refuses_is_said(tmp_path: Path) -> None:
    (tmp_path / "cluster").write_text("no directory")
    text = known.save(str(tmp_path / "cluster"), objects())
    assert "after a restart" in text
    assert time.time() > objects().heard_s
