"""``koord-scheduler switch`` on the fake API server, killed at every step."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from koord_scheduler.cli.main import main
from koord_scheduler.cli.switching.names import APPLIED, NAMESPACE, OURS, PARKED, RECORD
from koord_scheduler.cli.switching.plan import Plan, plan_back, plan_forward
from koord_scheduler.cli.switching.steps import StuckError
from tests.companion.cli.switching import reference
from tests.companion.cli.switching.story import OURS_FILES, ROLES, KilledError, Story, told
from tests.fakekube.faults import Fault

Tree = dict[str, Any]


@pytest.mark.parametrize("options", [{}, {"helm": False, "agent": "koord-koordlet"}])
def test_there_and_back_with_nobody_missing_at_any_moment(options: Tree) -> None:
    async def play(made: Story) -> None:
        before = made.world()
        done = await made.go(plan_forward)
        assert made.kube.faults == []
        seen = await made.read()
        for role, theirs in seen.theirs.items():
            if role != "agent":
                assert theirs["spec"]["replicas"] == 0
                assert seen.holders[role].startswith(OURS[role])
        agents = seen.our_pods("agent")
        assert len(agents) == 6
        assert not seen.their_pods("agent")
        assert not seen.parked
        ends = [e["targetRef"]["name"] for each in seen.slices for e in each["endpoints"]]
        assert ends
        assert all(name.startswith(OURS["manager"]) for name in ends)
        # A second time there is nothing to do.
        made.kube.fake.requests.clear()
        assert len(await made.go(plan_forward)) == len(done)
        writes = [each for each in made.kube.fake.requests if not each.startswith("GET")]
        assert writes == []
        await made.go(plan_back)
        assert made.kube.faults == []
        now = made.world()
        data = now["secrets/koordinator-system/koordinator-webhook-certs"]["data"]
        assert reference.SECRET.items() <= data.items()
        for world in (before, now):
            del world["secrets/koordinator-system/koordinator-webhook-certs"]
        assert now == before
        seen = await made.read()
        assert len(seen.their_pods("agent")) == 6
        assert not any(seen.our_pods(role) for role in ROLES)

    told(play, **options)


def test_killed_after_each_write_it_goes_on_in_both_directions() -> None:
    """Also between two writes of one step, as nodes get their labels."""
    roles = ("agent", "manager")

    async def until_done(made: Story, make: Callable[..., Plan]) -> int:
        for kills in range(200):
            try:
                await made.go(make, roles, writes=1)
            except KilledError:
                continue
            return kills
        raise AssertionError("it never ends")

    async def play(made: Story) -> None:
        made = made._replace(ours=OURS_FILES._replace(definitions={}))
        before = made.world()
        assert await until_done(made, plan_forward) > 20
        seen = await made.read()
        assert len(seen.our_pods("agent")) == 3
        assert not seen.their_pods("agent")
        assert seen.theirs["manager"]["spec"]["replicas"] == 0
        assert seen.theirs["scheduler"]["spec"]["replicas"] == 2
        assert await until_done(made, plan_back) > 20
        assert made.kube.faults == []
        now = made.world()
        for world in (before, now):
            del world["secrets/koordinator-system/koordinator-webhook-certs"]
        assert now == before

    told(play, nodes=3)


def test_what_theirs_is_told_ours_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    async def play(made: Story) -> None:
        selector = {"spec": {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}}
        made.kube.patch("daemonsets", "koordlet", selector)
        made.kube.settle()
        plan = await made.plan(plan_forward)
        assert "DaemonSet koordlet: by hand: --feature-gates=BECPUEvict=true" in plan.notes
        assert any("--feature-gates=WebhookFramework=true" in each for each in plan.notes)
        assert any("release koordinator" in each for each in plan.notes)
        await made.go(plan_forward)
        seen = await made.read()
        container = seen.ours["scheduler"]["spec"]["template"]["spec"]["containers"][0]
        assert container["args"][-1] == "--config=/etc/koord-switch/koord-scheduler-config"
        manager = seen.ours["manager"]["spec"]["template"]["spec"]["containers"][0]
        assert "--feature-gates=MultiQuotaTree=true" in manager["args"]
        assert "--webhook-failure-policy=Ignore" in manager["args"]
        agent = seen.ours["agent"]["spec"]["template"]["spec"]
        assert agent["nodeSelector"]["zone"] == "a"
        data = (seen.secret or {})["data"]
        assert (data["ca.crt"], data["tls.key"]) == ("Y2E=", "a2V5")
        assert data["ca-key.pem"] == reference.SECRET["ca-key.pem"]

    told(play)


def test_another_lease_means_that_theirs_ends_first() -> None:
    async def play(made: Story) -> None:
        text = reference.configuration(
            "koord-scheduler", leaderElection={"leaderElect": True, "resourceName": "other"}
        )["data"]
        made.kube.patch("configmaps", "koord-scheduler-config", {"data": text})
        made.kube.watched = frozenset()
        done = await made.go(plan_forward, roles=("scheduler",))
        steps = [each for each in done if "Deployment" in each]
        assert steps == [
            "scheduler create Deployment koordlet-scheduler",
            "scheduler scale Deployment koord-scheduler",
            "scheduler create Deployment koordlet-scheduler",
        ]
        back = await made.go(plan_back, roles=("scheduler",))
        steps = [each for each in back if "Deployment" in each]
        assert steps == [
            "scheduler delete Deployment koordlet-scheduler",
            "scheduler scale Deployment koord-scheduler",
        ]

    told(play)


def _file_without_a_lease(made: Story) -> None:
    text = reference.configuration("koord-scheduler", leaderElection={"leaderElect": True})["data"]
    made.kube.patch("configmaps", "koord-scheduler-config", {"data": text})


def _flag(flag: str) -> Callable[[Story], None]:
    def change(made: Story) -> None:
        tree = reference.workload("koord-scheduler")
        container = tree["spec"]["template"]["spec"]["containers"][0]
        container["args"] = [*container["args"], flag]
        made.kube.patch("deployments", "koord-scheduler", {"spec": tree["spec"]})
        made.kube.settle()

    return change


OTHER_LEASES = [
    _file_without_a_lease,
    _flag("--leader-elect=false"),
    _flag("-leader-elect=0"),
    _flag("--leader-elect-resource-name=mine"),
    _flag("--leader-elect-resource-namespace=kube-system"),
]


@pytest.mark.parametrize("change", OTHER_LEASES)
def test_theirs_without_our_lease_ends_before_ours_begins(change: Callable[[Story], None]) -> None:
    async def play(made: Story) -> None:
        change(made)
        plan = await made.plan(plan_forward, roles=("scheduler",))
        steps = [each.verb for each in plan.steps if each.what.startswith("Deployment")]
        assert steps == ["create", "scale", "create"]

    told(play)


BROKEN_ROLES = ("{", "{}", '{"workload": 7}', '{"workload": {"kind": "Deployment"}}')


@pytest.mark.parametrize(
    ("record", "again"),
    [(None, False), (None, True), (dict(zip(ROLES, BROKEN_ROLES, strict=True)), False)],
)
def test_a_lost_record_leaves_nobody_without_theirs(record: Tree | None, again: bool) -> None:
    """``again``: --apply comes before --back, and must not write down the switched state."""

    async def play(made: Story) -> None:
        await made.go(plan_forward)
        made.kube.drop("configmaps", RECORD)
        if record is not None:
            meta = {"name": RECORD, "namespace": NAMESPACE}
            made.kube.put("configmaps", {"metadata": meta, "data": record})
        if again:
            await made.go(plan_forward)
        await made.go(plan_back)
        assert made.kube.faults == []
        seen = await made.read()
        assert not any(seen.our_pods(role) for role in ROLES)
        assert all(seen.their_pods(role) for role in ROLES)
        assert len(seen.their_pods("agent")) == 2
        ends = [e["targetRef"]["name"] for each in seen.slices for e in each["endpoints"]]
        assert ends
        assert all(name.startswith("koord-manager") for name in ends)

    told(play, nodes=2)


def test_back_keeps_the_image_that_runs_and_the_number_of_an_autoscaler() -> None:
    async def play(made: Story) -> None:
        await made.go(plan_forward, image="registry.example/koordlet:7")
        plan = await made.plan(plan_back)
        (unregister,) = (e for e in plan.steps if "leaves the registration" in e.why)
        (write,) = unregister.writes(await made.read())
        container = write.body["spec"]["template"]["spec"]["containers"][0]
        assert container["image"] == "registry.example/koordlet:7"
        made.kube.patch("deployments", "koord-manager", {"spec": {"replicas": 3}})
        made.kube.faults.clear()
        made.kube.watched = frozenset()
        await made.go(plan_back)
        assert (await made.read()).theirs["manager"]["spec"]["replicas"] == 3

    told(play, nodes=1)


def test_nobody_runs_ours_where_theirs_was_switched_off() -> None:
    async def play(made: Story) -> None:
        made.kube.patch("deployments", "koord-descheduler", {"spec": {"replicas": 0}})
        plan = await made.plan(plan_forward)
        assert "descheduler" not in {each.role for each in plan.steps}
        assert any(each.startswith("descheduler: theirs is scaled to 0") for each in plan.notes)

    told(play, nodes=1)


def test_one_dash_is_two_and_a_second_workload_is_a_problem() -> None:
    async def play(made: Story) -> None:
        tree = reference.workload("koordlet", name="koordlet-gpu")
        tree["spec"]["template"]["spec"]["containers"][0]["args"] = ["--feature-gates=A=true"]
        made.kube.put("daemonsets", tree)
        plan = await made.plan(plan_forward, roles=("agent",))
        assert any("is a second workload" in each for each in plan.problems)
        made.kube.drop("daemonsets", "koordlet")
        plan = await made.plan(plan_forward, roles=("agent",))
        assert "DaemonSet koordlet-gpu: by hand: --feature-gates=A=true" in plan.notes

    told(play, nodes=1)


def test_registrations_that_came_with_us_go_before_we_do() -> None:
    """Else the API server would ask for ever after, and refuse every pod."""

    async def play(made: Story) -> None:
        kube = made.kube
        for kind in ("mutating", "validating"):
            resource = kube.fake.resource(f"{kind}webhookconfigurations")
            name = f"koordinator-{kind}-webhook-configuration"
            kube.fake.store.delete(resource, ("", name), {})
        kube.drop("services", "koordinator-webhook-service")
        kube.watched = frozenset()
        before = made.world()
        await made.go(plan_forward, ("manager",))
        assert (await made.read()).service
        kube.put("mutatingwebhookconfigurations", reference.webhooks("Mutating", "/mutate-pod"))
        done = await made.go(plan_back, ("manager",))
        registration = "manager delete MutatingWebhookConfiguration"
        steps = [" ".join(each.split()[:3]) for each in done]
        assert steps.index(registration) < steps.index("manager delete Deployment")
        now = made.world()
        for world in (before, now):
            del world["secrets/koordinator-system/koordinator-webhook-certs"]
        assert now == before

    told(play)


BROKEN = {
    "scheduler": ("koordlet-scheduler", "pods are ready"),
    "agent": ("koordlet-agent", "n0 on the way"),
}


@pytest.mark.parametrize("role", sorted(BROKEN))
def test_ours_that_does_not_start_changes_nothing_else(role: str) -> None:
    workload, words = BROKEN[role]

    async def play(made: Story) -> None:
        made.kube.broken.add(workload)
        with pytest.raises(StuckError, match=f"{role}: .*{words}") as told_so:
            await made.go(plan_forward, roles=(role,))
        assert "--back" in str(told_so.value)
        assert made.kube.faults == []
        made.kube.broken.clear()
        await made.go(plan_back, roles=(role,))
        assert made.kube.faults == []
        seen = await made.read()
        assert RECORD not in {e["metadata"]["name"] for e in made.kube.all("configmaps")}
        assert len(seen.their_pods("agent")) == 6

    told(play)


def test_a_right_that_is_missing_is_named_with_its_step() -> None:
    async def play(made: Story) -> None:
        made.kube.fake.faults.add(
            Fault(lambda what: "PATCH" in what and "/clusterroles/" in what, times=99, status=403)
        )
        with pytest.raises(StuckError, match=r"descheduler: ClusterRole koord-descheduler: .*403"):
            await made.go(plan_forward, roles=("descheduler",))

    told(play, nodes=1)


def refused(made: Story) -> None:
    bad = {"koord-scheduler-config": "kind: KubeSchedulerConfiguration\nprofiles: [{plugins: 7}]\n"}
    made.kube.patch("configmaps", "koord-scheduler-config", {"data": bad})


def at_an_url(made: Story) -> None:
    hooks = [{"name": "a", "clientConfig": {"url": "https://192.0.2.1/mutate-pod"}}]
    name = "koordinator-mutating-webhook-configuration"
    made.kube.patch("mutatingwebhookconfigurations", name, {"webhooks": hooks})


def nothing_there(made: Story) -> None:
    for plural in ("deployments", "daemonsets"):
        for each in made.kube.all(plural):
            made.kube.drop(plural, each["metadata"]["name"])


PROBLEMS = [
    (refused, "ConfigMap koord-scheduler-config, koord-scheduler-config: "),
    (at_an_url, "webhooks are called at https://192.0.2.1/mutate-pod"),
    (nothing_there, "nothing to switch from"),
]


@pytest.mark.parametrize(("change", "words"), PROBLEMS)
def test_what_cannot_be_is_said_before_anything_changes(
    change: Callable[[Story], None], words: str
) -> None:
    async def play(made: Story) -> None:
        change(made)
        plan = await made.plan(plan_forward)
        assert any(words in each for each in plan.problems), plan.problems

    told(play)


def _without(version: str) -> Callable[[Tree], None]:
    def change(tree: Tree) -> None:
        (only,) = (e for e in tree["spec"]["versions"] if e["name"] == "v1alpha1")
        other = {**only, "name": "v1alpha2", "storage": True}
        given = [{**only, "storage": False, "served": version != "v1alpha1"}, other]
        tree["spec"]["versions"] = given if version != "absent" else [other]

    return change


DEFINITIONS = [
    ("both", _without("v1alpha2"), "leave", ["v1alpha1", "v1alpha2"]),
    ("not served", _without("v1alpha1"), "patch", ["v1alpha2", "v1alpha1"]),
    ("other alone", _without("absent"), "patch", ["v1alpha2", "v1alpha1"]),
    ("none", None, "create", ["v1alpha1"]),
]


@pytest.mark.parametrize(("_name", "change", "verb", "versions"), DEFINITIONS)
def test_a_definition_keeps_what_is_stored(
    _name: str, change: Callable[[Tree], None] | None, verb: str, versions: list[str]
) -> None:
    name = "noderesourcetopologies.topology.node.k8s.io"

    async def play(made: Story) -> None:
        kube = made.kube
        resource = kube.fake.resource("customresourcedefinitions")
        tree = kube.fake.store.get(resource, ("", name))
        kube.fake.store.delete(resource, ("", name), {})
        if change is not None:
            change(tree)
            tree["metadata"] = {"name": name}
            kube.put("customresourcedefinitions", tree)
        plan = await made.plan(plan_forward)
        assert [e.verb for e in plan.steps if e.what.endswith(name)] == [verb]
        await made.go(plan_forward, roles=("descheduler",))
        found = kube.fake.store.get(resource, ("", name))["spec"]["versions"]
        assert [each["name"] for each in found][: len(versions)] == versions
        assert all(e["served"] for e in found)
        assert sum(e["storage"] for e in found) == 1
        if change is not None:
            assert [e["name"] for e in found if e["storage"]] == ["v1alpha2"]

    told(play)


def test_dry_run_writes_nothing_and_names_every_object(capsys: pytest.CaptureFixture[str]) -> None:
    async def play(made: Story) -> None:
        made.kube.fake.requests.clear()
        plan = await made.plan(plan_forward)
        assert all(each.startswith("GET") for each in made.kube.fake.requests)
        text = " ".join(f"{each.verb} {each.what}" for each in plan.steps)
        for words in (
            "create ConfigMap koordlet-switch",
            "scale Deployment koord-manager",
            "patch DaemonSet koordlet",
            "create ClusterRole koord-scheduler",
            "leave ServiceAccount koord-scheduler",
            "leave ConfigMap slo-controller-config",
            "patch Service koordinator-webhook-service",
            "patch Secret koordinator-webhook-certs",
        ):
            assert words in text
        assert "Namespace" not in text

    told(play)


def test_the_names_of_the_labels_are_those_of_the_files() -> None:
    agent = OURS_FILES.workloads["agent"]
    assert PARKED in json.dumps(agent["spec"]["template"]["spec"]["affinity"])
    assert APPLIED not in json.dumps(agent)


WRONG = [
    ("--from helm --dry-run", "only koordinator is known"),
    ("--from koordinator", "give one of --dry-run, --apply and --back"),
    ("--from koordinator --apply --back", "give one of"),
    ("--from koordinator --dry-run --roles agent,nobody", "--roles nobody: there are agent"),
]


@pytest.mark.parametrize(("line", "words"), WRONG)
def test_wrong_use_is_told(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["switch", *line.split()]) == 2
    assert words in capsys.readouterr().err
