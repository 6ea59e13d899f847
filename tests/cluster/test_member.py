"""What the API server says, as the daemon acts on it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import structlog

from koordlet.cluster import member
from koordlet.cluster.member import MOST_REFUSED, NODE_SLOS
from koordlet.cluster.options import Options
from koordlet.config.load import load
from koordlet.daemon.reload import until_restart
from koordlet.protocol.slo_defaults import DEFAULTS
from tests.cluster.conftest import Join
from tests.cluster.joined import NODE, Joined, kubeconfig, node, pod, slo
from tests.cluster.reporting.rig import Rig
from tests.daemon.world import World
from tests.fakekube import FakeKube

BE = {"koordinator.sh/qosClass": "BE"}


def threshold(joined: Joined) -> int | None:
    found = joined.world.engine.loaded.slo.resource_used_threshold_with_be
    return found.cpu_suppress_threshold_percent if found is not None else None


def run(work: Any) -> None:
    asyncio.run(work)


def test_a_node_slo_takes_the_place_of_the_file(join: Join) -> None:
    async def main() -> None:
        async with join() as joined:
            assert threshold(joined) == 65
            use = {"enable": True, "cpuSuppressThresholdPercent": 40}
            joined.put("nodeslos", slo(resourceUsedThresholdWithBE=use))
            await joined.sees(lambda: threshold(joined) == 40)
            loaded = joined.world.engine.loaded
            key = "slo.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent"
            assert loaded.origins[key] == f"NodeSLO {NODE}"
            assert loaded.origins["slo.cpuBurstStrategy.policy"] == "default"
            told = [text for text in joined.world.texts() if text.startswith("config ")]
            assert key in told[-1]
            joined.change(
                "nodeslos",
                NODE,
                {"spec": {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": 50}}},
            )
            await joined.sees(lambda: threshold(joined) == 50)
            assert joined.object("NodeSLO").state == "watched"

    run(main())


def test_keys_of_the_configuration_stay_above_the_node_slo_and_over_a_reload(join: Join) -> None:
    inline = "[slo.resourceUsedThresholdWithBE]\ncpuSuppressThresholdPercent = 30\n"

    async def main() -> None:
        async with join(inline) as joined:
            use = {"enable": True, "cpuSuppressThresholdPercent": 40}
            joined.put("nodeslos", slo(resourceUsedThresholdWithBE=use))
            loaded = lambda: joined.world.engine.loaded  # noqa: E731
            await joined.sees(lambda: loaded().slo.resource_used_threshold_with_be.enable is True)
            assert threshold(joined) == 30
            key = "slo.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent"
            assert loaded().origins[key].startswith("koordlet.toml:")
            again = joined.membership.laid(loaded())
            assert again.slo == loaded().slo
            assert again.origins == loaded().origins

    run(main())


def test_a_configuration_that_is_taken_up_is_what_the_next_node_slo_is_laid_over(
    join: Join,
) -> None:
    async def main() -> None:
        async with join() as joined:
            world, membership = joined.world, joined.membership
            use = {"enable": True, "cpuSuppressThresholdPercent": 40}
            joined.put("nodeslos", slo(resourceUsedThresholdWithBE=use))
            await joined.sees(lambda: threshold(joined) == 40)

            def reload(more: str, *, refused: bool = False) -> None:
                text = world.file.read_text()
                world.file.write_text(text + more)
                read = load(str(world.file))
                world.file.write_text(text)
                loaded, _ = until_restart(world.engine.loaded, membership.laid(read))
                if not refused:
                    world.engine.reconfigure(loaded)
                    membership.took(read, loaded)

            reload("\n[daemon]\ntick_seconds = 5\n", refused=True)
            reload('\n[daemon]\ntick_seconds = 2\n[tsdb]\nmax_bytes = "50Mi"\n')
            before = world.engine.loaded
            assert threshold(joined) == 40
            joined.change(
                "nodeslos",
                NODE,
                {"spec": {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": 50}}},
            )
            await joined.sees(lambda: threshold(joined) == 50)
            after = world.engine.loaded
            assert after.config == before.config
            assert after.config.daemon.tick_seconds == 2
            assert after.config.tsdb.max_bytes == 100 << 20  # until a restart
            assert "after a restart" in after.origins["tsdb.max_bytes"]

    run(main())


def test_a_bad_section_keeps_what_it_said_and_costs_no_other(join: Join) -> None:
    async def main() -> None:
        async with join() as joined:
            world = joined.world
            use = {"enable": True, "cpuSuppressThresholdPercent": 40}
            joined.put("nodeslos", slo(resourceUsedThresholdWithBE=use))
            await joined.sees(lambda: threshold(joined) == 40)
            schema = joined.kube.store.schemas
            schema.pop(joined.kube.resource("nodeslos"))  # a server whose definition is older
            bad = {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": "many"}}
            good = {"cpuBurstStrategy": {"policy": "auto"}}
            joined.change("nodeslos", NODE, {"spec": bad | good})
            await joined.sees(lambda: world.engine.loaded.slo.cpu_burst_strategy.policy == "auto")
            assert threshold(joined) == 40
            (fault,) = world.engine.faults()
            assert fault.subject == f"NodeSLO {NODE}"
            assert fault.path == "spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent"
            assert "stays" in fault.message
            joined.change("nodeslos", NODE, {"spec": {"resourceUsedThresholdWithBE": None}})
            await joined.sees(lambda: not world.engine.faults())
            assert threshold(joined) == 65

    run(main())


def test_a_deleted_node_slo_stays_in_force_and_status_says_so(join: Join) -> None:
    async def main() -> None:
        async with join() as joined:
            use = {"enable": True, "cpuSuppressThresholdPercent": 40}
            joined.put("nodeslos", slo(resourceUsedThresholdWithBE=use))
            await joined.sees(lambda: threshold(joined) == 40)
            joined.delete("nodeslos", NODE)
            await joined.sees(lambda: joined.object("NodeSLO").state == "deleted")
            assert threshold(joined) == 40

    run(main())


def test_the_node_says_what_it_offers_and_what_is_kept(join: Join) -> None:
    annotations = {
        "node.koordinator.sh/reservation": '{"reservedCPUs":"0"}',
        "node.koordinator.sh/cpu-normalization-ratio": "1.20",
        "example.com/other": "x" * 100,
    }
    amounts = {"cpu": "3500m", "memory": "7Gi", "kubernetes.io/batch-cpu": "2500"}

    async def main() -> None:
        async with join() as joined:
            machine = joined.world.engine.node
            joined.put("nodes", node({"a": "b"}, annotations, allocatable=amounts))
            await joined.sees(lambda: machine().allocatable is not None)
            assert not joined.world.engine.cluster.gives_any_pod_cpus
            found = machine()
            offered = {"cpu": 3500, "memory": 7 << 30, "kubernetes.io/batch-cpu": 2500}
            assert found.allocatable == offered
            assert found.kubelet.reserved_milli == 500
            assert found.cpus.reserved == frozenset({0})
            assert found.cpus.annotation_reserved_milli == 1000
            assert found.cpus.normalization_ratio == 1.2
            assert "example.com/other" not in joined.world.engine.cluster.annotations
            joined.change("nodes", NODE, {"metadata": {"annotations": {
                "node.koordinator.sh/reservation": None}}})  # fmt: skip
            await joined.sees(lambda: machine().cpus.reserved == frozenset())
            policy = {"node.koordinator.sh/cpu-bind-policy": "SpreadByPCPUs"}
            joined.change("nodes", NODE, {"metadata": {"labels": policy}})
            await joined.sees(lambda: joined.world.engine.cluster.gives_any_pod_cpus)

    run(main())


def test_what_was_allocatable_before_it_was_amplified_tells_what_kubelet_keeps(join: Join) -> None:
    raw = {"node.koordinator.sh/raw-allocatable": '{"cpu":"3"}'}

    async def main() -> None:
        async with join() as joined:
            joined.put("nodes", node({}, raw, allocatable={"cpu": "6"}))
            await joined.sees(lambda: joined.world.engine.node().allocatable is not None)
            assert joined.world.engine.node().kubelet.reserved_milli == 1000

    run(main())


def test_a_pod_is_what_all_know_of_it_and_each_field_has_its_origin(join: Join) -> None:
    containers = (
        {
            "name": "main",
            "resources": {
                "requests": {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"},
                "limits": {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "1Gi"},
            },
        },
    )

    async def main() -> None:
        async with join() as joined:
            tree = pod("be", labels=BE, containers=containers, ids={"main": "c1"})
            tree["spec"]["priority"] = 5500
            uid = joined.put("pods", tree)["metadata"]["uid"]
            joined.put("pods", pod("elsewhere", on="node-2"))
            joined.world.host.make_pod(uid=uid, qos="burstable", containers=("c1",))
            await joined.sees(lambda: joined.pod(uid) is not None)
            await joined.sees(lambda: joined.pod(uid).name == "be")
            found = joined.pod(uid)
            assert (found.qos, found.priority, found.namespace) == ("BE", 5500, "default")
            (container,) = found.containers
            assert container.id == "containerd://c1"
            assert container.resources.request_batch_cpu_milli == 500
            assert container.resources.limit_batch_cpu_milli == 1000
            assert found.resources.request_batch_memory_bytes == 1 << 30
            assert found.origins["cgroup"] == "cgroup-tree"
            assert found.origins["labels"] == found.origins["priority"] == "api"
            joined.change("pods", "be", {"metadata": {"labels": {
                "koordinator.sh/qosClass": "LS"}}}, "default")  # fmt: skip
            await joined.sees(lambda: joined.pod(uid).qos == "LS")
            assert len(joined.world.parts.state.pods()) == 1

    run(main())


def test_a_pod_that_is_gone_from_the_server_and_lives_here_keeps_its_rules(join: Join) -> None:
    async def main() -> None:
        async with join() as joined:
            uid = joined.put("pods", pod("be", labels=BE))["metadata"]["uid"]
            groups = joined.world.host.make_pod(uid=uid, qos="burstable")
            await joined.sees(lambda: joined.pod(uid) is not None and joined.pod(uid).qos == "BE")
            joined.delete("pods", "be", "default")
            api = joined.world.parts.listed["api"]
            await joined.sees(lambda: api.departed == 1)
            assert joined.pod(uid).qos == "BE"
            joined.world.host.remove_cgroup(groups.pod)
            joined.world.engine.rescan()
            await joined.sees(lambda: joined.pod(uid) is None)
            assert not api.pods()

    run(main())


def test_an_empty_list_is_not_believed(join: Join) -> None:
    async def main() -> None:
        async with join() as joined:
            uid = joined.put("pods", pod("be", labels=BE))["metadata"]["uid"]
            joined.world.host.make_pod(uid=uid, qos="burstable")
            await joined.sees(lambda: joined.pod(uid) is not None and joined.pod(uid).qos == "BE")
            store, lists = joined.kube.store, joined.member.pods.lists
            store._objects[joined.kube.resource("pods")].clear()  # a server that has lost its disk
            joined.put("nodes", node())
            store.compact()
            joined.kube.faults.cut_watches()
            await joined.sees(lambda: joined.member.pods.lists > lists)
            assert not joined.member.pods.objects
            assert joined.pod(uid).qos == "BE"

    run(main())


def test_a_static_pod_is_known_by_the_uid_that_kubelet_gave_it(join: Join) -> None:
    hashed = "0123456789abcdef0123456789abcdef"
    mirror = {"kubernetes.io/config.mirror": hashed}

    async def main() -> None:
        async with join() as joined:
            joined.put("pods", pod("static", labels=BE, annotations=mirror))
            joined.world.host.make_pod(uid=hashed, qos="burstable")
            await joined.sees(lambda: joined.pod(hashed) is not None)
            await joined.sees(lambda: joined.pod(hashed).name == "static")

    run(main())


def test_a_pod_cannot_pass_for_another_one(join: Join) -> None:
    async def main() -> None:
        async with join() as joined:
            victim = joined.put("pods", pod("victim"))["metadata"]["uid"]
            joined.world.host.make_pod(uid=victim, qos="burstable")
            await joined.sees(lambda: joined.pod(victim) is not None)
            claim = {"kubernetes.io/config.mirror": victim}
            joined.put("pods", pod("thief", labels=BE, annotations=claim))
            api = joined.world.parts.listed["api"]
            await joined.sees(lambda: bool(api.refused))
            assert joined.pod(victim).name == "victim"
            assert joined.pod(victim).qos != "BE"
            (fault,) = [f for f in joined.world.engine.faults() if "thief" in f.subject]
            assert "uid" in fault.message

    run(main())


def test_refused_pods_are_listed_up_to_a_number_and_while_they_are_there(join: Join) -> None:
    def crowd(world: World, kube: FakeKube) -> None:
        claim = {"kubernetes.io/config.mirror": "no uid"}
        for number in range(MOST_REFUSED + 5):
            tree = pod(f"thief-{number}", annotations=claim)
            kube.store.create(kube.resource("pods"), "default", tree)

    async def main() -> None:
        async with join(before=crowd) as joined:
            api = joined.world.parts.listed["api"]
            await joined.sees(lambda: api.listed)
            assert len(api.refused) == MOST_REFUSED
            assert not api.pods()
            for number in range(MOST_REFUSED + 5):
                joined.delete("pods", f"thief-{number}", "default")
            await joined.sees(lambda: not api.refused)
            crowd(joined.world, joined.kube)
            await joined.sees(lambda: len(api.refused) == MOST_REFUSED)

    with structlog.testing.capture_logs() as logs:
        run(main())
    told = [each for each in logs if each["event"] == "an object of the API server cannot be read"]
    assert len(told) == MOST_REFUSED


def test_fields_that_the_definition_does_not_have_are_named(join: Join) -> None:
    """The server drops them silently; it tells its schema to whoever asks."""

    def older(world: World, kube: FakeKube) -> None:
        (schema,) = (s for r, s in kube.store.schemas.items() if r.plural == "nodeslos")
        spec = schema.tree["properties"]["spec"]["properties"]
        del spec["systemStrategy"], spec["resourceUsedThresholdWithBE"]["properties"]["enable"]

    async def main() -> None:
        async with join(before=older) as joined:
            await joined.sees(lambda: joined.object("definition of NodeSLO").state == "asked")
            seen = joined.object("definition of NodeSLO")
            fields = "spec.resourceUsedThresholdWithBE.enable, spec.systemStrategy"
            assert (seen.name, seen.error) == ("nodeslos.slo.koordinator.sh", f"has no {fields}")
        async with join() as joined:
            await joined.sees(lambda: joined.object("definition of NodeSLO").state == "asked")
            assert not joined.object("definition of NodeSLO").error

    run(main())


def test_no_definition_of_node_slos_stops_nothing_else(join: Join) -> None:
    def without(world: World, kube: FakeKube) -> None:
        kube._resources = {k: r for k, r in kube._resources.items() if r.plural != "nodeslos"}

    async def main() -> None:
        async with join(before=without) as joined:
            joined.put("nodes", node())
            await joined.sees(lambda: joined.world.engine.node().allocatable is not None)
            mirror = joined.member.slos
            await joined.sees(lambda: bool(mirror.error))
            assert "404" in joined.object("NodeSLO").error
            assert joined.world.engine.loaded.slo == DEFAULTS or threshold(joined) == 65
            assert NODE_SLOS.name == mirror.kind.name

    run(main())


def test_a_part_that_fails_each_time_is_shown_and_logged_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member, "AGAIN_S", 0.001)
    rig, tries = Rig(), 0
    shown: list[str] = []

    async def broken() -> None:
        nonlocal tries
        tries += 1
        if tries == 10:
            await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(_raise(OSError("no such socket" if tries < 5 else "another")))

    async def main() -> None:
        task = asyncio.create_task(rig.member._kept("proxy", broken))
        while tries < 10:
            shown.append(rig.problems.get("cluster: proxy", ""))
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with structlog.testing.capture_logs() as logs:
        run(main())
    assert {"OSError: no such socket", "OSError: another"} <= set(shown)
    assert len([each for each in logs if each["event"] == "part failed"]) == 2


def test_a_part_that_fails_as_it_is_cancelled_ends(tmp_path: Path) -> None:
    rig, begun = Rig(), asyncio.Event()

    async def fails(_: member.Member) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("at the same moment")

    async def main() -> None:
        options = Options(str(kubeconfig(tmp_path, "http://127.0.0.1:9")), NODE, kubelet=False)
        task = asyncio.create_task(member.Member(options, rig.around, (fails,)).run())
        await begun.wait()
        task.cancel()
        await asyncio.wait([task], timeout=member.AGAIN_S / 2)
        assert task.cancelled()

    run(main())


async def _raise(error: Exception) -> None:
    raise error
