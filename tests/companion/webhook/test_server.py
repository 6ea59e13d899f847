"""The server, its certificate and its registration, on the fake API server."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import datetime
import json
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from koord_scheduler.admission.words import AdmissionError
from koord_scheduler.daemon import admission as parts
from koord_scheduler.daemon import world
from koord_scheduler.daemon.admission import SECRET_NAME, WebhookServer
from koord_scheduler.daemon.process import Companion
from koord_scheduler.webhook.certificates import expires, renewed
from koord_scheduler.webhook.kinds import (
    MUTATING,
    NAMESPACES,
    PRIORITY_CLASSES,
    PROFILES,
    SECRETS,
    VALIDATING,
)
from koord_scheduler.webhook.registration import MUTATING_NAME, VALIDATING_NAME, WEBHOOKS
from koord_scheduler.webhook.review import MOST_VALUES, check_values, request_of, uid_in
from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster
from koordlet.kube.kinds import PODS
from tests.companion.webhook.stories import (
    KEEPER,
    NAMESPACE,
    OTHER_GATES,
    PRIORITIES,
    SERVER,
    WITHOUT_QUOTAS,
    companion,
    free_port,
    options,
    pod,
    priority_class,
)
from tests.fakekube import FakeKube, Fault, serving
from tests.kube.conftest import CRDS as DEFINITIONS
from tests.kube.worlds import until

CRDS = [yaml.safe_load(path.read_text()) for path in sorted(DEFINITIONS.glob("*.yaml"))]
PROFILE: dict[str, Any] = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "batch"},
    "spec": {
        "namespaceSelector": {"matchLabels": {"colocation": "true"}},
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
    },
}


async def prepared(client: Client) -> None:
    labels = {"colocation": "true"}
    await client.create(NAMESPACES, {"metadata": {"name": "colocated", "labels": labels}})
    for name in PRIORITIES:
        await client.create(PRIORITY_CLASSES, priority_class(name))
    await client.create(PROFILES, PROFILE)


def server_of(made: Companion) -> WebhookServer:
    return next(each for _, each in made.controllers if isinstance(each, WebhookServer))


async def authorities(client: Client) -> bytes:
    secret = await client.get(SECRETS, SECRET_NAME, NAMESPACE)
    return base64.b64decode(secret.data["ca.crt"])


def trusting(pem: bytes) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=pem.decode())


async def asked(port: int, trust: ssl.SSLContext, path: str, body: Any) -> dict[str, Any]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"https://127.0.0.1:{port}{path}", data=text, ssl=trust) as answer,
    ):
        found: dict[str, Any] = json.loads(await answer.read())
        assert answer.status == 200, found
        return found["response"]


def review(tree: Any, **more: Any) -> dict[str, Any]:
    request = {"uid": "u", "operation": "CREATE", "namespace": "colocated", "object": tree}
    return {"apiVersion": "admission.k8s.io/v1", "request": {**request, **more}}


def test_a_pod_over_https_with_our_own_certificate() -> None:
    async def story() -> None:
        async with serving(*CRDS) as fake, Client(Cluster(fake.url, "the test")) as client:
            await prepared(client)
            port = free_port()
            async with companion(Cluster(fake.url, "the test"), options(port)) as made:
                await until(lambda: server_of(made).port == port)
                await until(lambda: _registered(fake))
                trust = trusting(await authorities(client))
                found = await asked(port, trust, "/mutate-pod", review(pod("p", cpu="1500m")))
                assert (
                    found["uid"] == "u" and found["allowed"] and found["patchType"] == "JSONPatch"
                )
                patch = json.loads(base64.b64decode(found["patch"]))
                added = {each["path"]: each.get("value") for each in patch}
                assert added["/metadata/labels/koordinator.sh~1qosClass"] == "BE"
                where = "/spec/containers/0/resources/requests/kubernetes.io~1batch-cpu"
                assert added[where] == "1500"
                assert "profile batch" in found["auditAnnotations"]["changed-by"]
                # Whoever does not know our authority does not get far.
                with pytest.raises(aiohttp.ClientConnectorCertificateError):
                    await asked(port, ssl.create_default_context(), "/mutate-pod", review({}))
                bad = pod("p", {"koordinator.sh/qosClass": "BE"})
                found = await asked(port, trust, "/validate-pod", review(bad))
                assert not found["allowed"] and found["status"]["code"] == 400
                assert "does not go with" in found["status"]["message"]
                page = made.context.metrics.page()
                assert 'requests_total{path="/validate-pod",outcome="refused"} 1' in page

    asyncio.run(story())


def test_pods_are_admitted_where_koordinators_definitions_are_missing() -> None:
    """The registration refuses every pod of the cluster while nobody answers."""

    async def story() -> None:
        async with serving() as fake, Client(Cluster(fake.url, "the test")) as client:
            await client.create(NAMESPACES, {"metadata": {"name": "colocated"}})
            port = free_port()
            chosen = dataclasses.replace(
                options(port, "MultiQuotaTree=true"),
                health_address="127.0.0.1:0",
                metrics_address="127.0.0.1:0",
            )
            async with companion(Cluster(fake.url, "the test"), chosen) as made:
                await until(lambda: server_of(made).port == port)
                trust = trusting(await authorities(client))
                for path in ("/mutate-pod", "/validate-pod"):
                    assert (await asked(port, trust, path, review(pod("p"))))["allowed"]
                page = await _page(made.health_port, "/readyz")
                assert page[0] == 200
                for kind in ("clustercolocationprofiles", "elasticquotas", "elasticquotaprofiles"):
                    assert f"{kind}." in page[1]
                assert (await _page(made.health_port, "/healthz"))[0] == 200
                _, page = await _page(made.metrics_port, "/metrics")
                resource = 'resource="clustercolocationprofiles.config.koordinator.sh"'
                assert f"koord_scheduler_watch_listed{{{resource}}} 0" in page
                # The definition comes, and counts at once.
                for each in CRDS:
                    fake.define(each)
                profiles = made.context.watches.of(PROFILES)
                await client.create(PROFILES, PROFILE)
                await until(lambda: bool(profiles.objects))

    asyncio.run(story())


def test_not_ready_while_webhooks_have_no_certificate(tmp_path: Path) -> None:
    async def story() -> None:
        async with serving() as fake:
            port = free_port()
            chosen = dataclasses.replace(
                options(port, webhook_cert_dir=str(tmp_path)), health_address="127.0.0.1:0"
            )
            async with companion(Cluster(fake.url, "the test"), chosen, SERVER) as made:
                await until(lambda: bool(made.health_port))
                await until(lambda: not made.context.watches.unsynced())
                status, text = await _page(made.health_port, "/readyz")
                assert status == 503 and "webhook: does not listen yet" in text

    asyncio.run(story())


@pytest.mark.parametrize("upgrade", [False, True])
def test_every_replica_is_ready_when_the_api_server_knows_webhooks(upgrade: bool) -> None:
    """In an upgrade those of the release before do."""

    async def story() -> None:
        async with serving(*CRDS) as fake, Client(Cluster(fake.url, "the test")) as client:
            await prepared(client)
            chosen = dataclasses.replace(options(free_port()), health_address="127.0.0.1:0")
            waiting = dataclasses.replace(
                chosen, elect=True, extra={**chosen.extra, "webhook_addr": f":{free_port()}"}
            )
            cluster = Cluster(fake.url, "the test")
            if upgrade:
                for kind, name in ((MUTATING, MUTATING_NAME), (VALIDATING, VALIDATING_NAME)):
                    older = {"metadata": {"name": name}, "webhooks": [{"name": "older"}]}
                    await client.create(kind, older)
            refused = fake.faults.add(
                Fault(
                    lambda what: (
                        what.startswith(("POST", "PATCH")) and "webhookconfigurations" in what
                    ),
                    10**9,
                    status=503,
                )
            )
            async with companion(cluster, chosen) as made, companion(cluster, waiting) as other:
                await until(lambda: bool(made.health_port and server_of(made).port))
                if not upgrade:
                    status, text = await _page(made.health_port, "/readyz")
                    assert status == 503 and "webhook-registration: the API server is not" in text
                    refused.times = 0
                for each in (made, other):
                    await until(lambda each=each: not each.context.unready)
                    assert (await _page(each.health_port, "/readyz"))[0] == 200

    asyncio.run(story())


async def _page(port: int, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, await answer.text()


def _registered(fake: FakeKube) -> bool:
    found = fake.store._objects
    kinds = {fake.resource(each.plural) for each in (MUTATING, VALIDATING)}
    return all(found.get(each) for each in kinds)


DEEP = b'{"a":' * 1500
UIDS: list[tuple[bytes, str]] = [
    (b'{"kind":"AdmissionReview","request":{"uid":"a\\u0031","object":' + DEEP, "a1"),
    (b'{"request":{"object":{"uid":"no"},"uid":"yes","object":' + DEEP, "yes"),
    (b'{"a":{"request":{"uid":"no"}},"request":{"x":{"uid":1},"y":[3,{"uid":"no"}],"uid":"u"', "u"),
    (b'{"uid":"no","request":[{"uid":"no"}]}', ""),
    (b'{"request":{"uid":3,"uid":null}}', ""),
    (b'{"request":{"uid":"' + b"x" * 1000 + b'"', ""),
    (b'{"request":{"a":"' + b"x" * 20_000 + b'","uid":"far"', ""),
    (b'"' + b'\\"' * 1_000_000, ""),
    (b"[" * 1_000_000, ""),
    (b"", ""),
]


@pytest.mark.parametrize(("body", "uid"), UIDS, ids=range(len(UIDS)))
def test_the_uid_of_what_cannot_be_read(body: bytes, uid: str) -> None:
    assert uid_in(body) == uid


def test_a_review_has_so_many_values_and_containers() -> None:
    whole = b'{"a":"' + b"[,{" * 200_000 + b'\\"","b":[' + b"1," * (MOST_VALUES - 10) + b"1]}"
    check_values(whole)
    for text in (
        whole[:-1] + b"," + b"[]," * 20,
        b'"x",' * (MOST_VALUES + 1),
        b'"' + b"," * 200_000,
    ):
        with pytest.raises(AdmissionError, match="more than 100000 values"):
            check_values(text)
    spec = {"containers": [{"name": "a"}] * 600, "initContainers": [{"name": "b"}] * 400}
    assert request_of(json.dumps(review({"spec": spec})).encode()).tree
    spec["ephemeralContainers"] = [{"name": "c"}]
    with pytest.raises(AdmissionError, match="more than 1000 containers"):
        assert request_of(json.dumps(review({"spec": spec})).encode()).tree


BROKEN: list[tuple[bytes, str]] = [
    (b"", "no AdmissionReview"),
    (b"{", "no AdmissionReview"),
    (b"[" * 100_000, "no AdmissionReview"),
    (b'{"request":{"uid":"u"}}', "no AdmissionReview"),
    (b'{"request":{"uid":"u","operation":"CREATE"}}', "without an object"),
    (b'{"request":{"uid":"u","operation":"CREATE","object":3}}', "the object is none"),
    (b'{"request":{"uid":"u","operation":"CREATE","object":{"a":1}}}', "cannot be read"),
    (b'{"request":{"uid":"u","operation":"CREATE","object":' + b'{"a":' * 5000 + b"1", "no Adm"),
]


def test_requests_of_whoever_finds_the_port() -> None:
    async def story() -> None:
        async with serving(*CRDS) as fake, Client(Cluster(fake.url, "the test")) as client:
            await prepared(client)
            port = free_port()
            chosen = options(port, f"{WITHOUT_QUOTAS},{OTHER_GATES}")
            async with companion(Cluster(fake.url, "the test"), chosen) as made:
                await until(lambda: server_of(made).port == port)
                trust = trusting(await authorities(client))
                on = {each.path for each in WEBHOOKS if "elasticquota" not in each.path}
                for path in sorted(on - {"/mutate-reservation"}):
                    for body, why in BROKEN:
                        found = await asked(port, trust, path, body)
                        assert found["uid"] == ("u" if b'"uid"' in body else "")
                        if found["allowed"]:
                            # Some look at the operation, the subresource or the name first.
                            assert path not in ("/mutate-pod", "/validate-pod"), path
                        elif path in ("/mutate-pod", "/validate-pod"):
                            assert why in found["status"]["message"]
                async with aiohttp.ClientSession() as session:
                    url = f"https://127.0.0.1:{port}"
                    async with session.post(url + "/mutate-reservation", ssl=trust) as answer:
                        assert answer.status == 404  # its gate is off
                    async with session.get(url + "/healthz", ssl=trust) as answer:
                        assert await answer.text() == "ok"

    asyncio.run(story())


def test_an_api_server_that_is_away_refuses_and_does_not_end_us() -> None:
    async def story() -> None:
        async with serving(*CRDS) as fake, Client(Cluster(fake.url, "the test")) as client:
            await prepared(client)
            port = free_port()
            async with companion(Cluster(fake.url, "the test"), options(port)) as made:
                await until(lambda: server_of(made).port == port)
                trust = trusting(await authorities(client))
                fault = fake.faults.add(Fault(lambda _: True, 10**9, status=503))
                known = await asked(port, trust, "/mutate-pod", review(pod("p", cpu="1")))
                assert known["allowed"] and known["patch"]
                # A namespace that no watch has shown yet must be asked for.
                other = review(pod("p", cpu="1"), namespace="unknown")
                found = await asked(port, trust, "/mutate-pod", other)
                assert not found["allowed"] and found["status"]["code"] == 500
                assert "503" in found["status"]["message"]
                fault.times = 0
                found = await asked(port, trust, "/mutate-pod", other)
                assert "404" in found["status"]["message"]

    asyncio.run(story())


def test_reviews_do_not_use_up_the_requests_of_the_controllers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each review names a namespace that nobody knows."""
    monkeypatch.setattr(world, "ASKED_PER_S", 1.0)
    monkeypatch.setattr(world, "_MOST_WAITING", 5)

    async def story() -> None:
        async with serving(*CRDS) as fake, Client(Cluster(fake.url, "the test")) as client:
            await prepared(client)
            port = free_port()
            async with companion(Cluster(fake.url, "the test"), options(port)) as made:
                await until(lambda: server_of(made).port == port)
                trust = trusting(await authorities(client))

                async def ask(name: str) -> dict[str, Any]:
                    return await asked(port, trust, "/mutate-pod", review(pod("p"), namespace=name))

                found = await asyncio.gather(*(ask(f"n{number}") for number in range(90)))
                messages = Counter(each["status"]["message"][:8] for each in found)
                assert messages["too many"] >= 20, messages
                sought = [n for what, n in fake.requests.items() if "/namespaces/n" in what]
                assert sum(sought) <= 70
                # One that is made just now is not asked for.
                late = asyncio.ensure_future(ask("new"))
                await client.create(NAMESPACES, {"metadata": {"name": "new"}})
                assert (await late)["allowed"]
                assert not fake.requests["GET /api/v1/namespaces/new"]

    asyncio.run(story())


def test_a_quota_whose_namespace_has_pods_cannot_become_a_parent() -> None:
    def quota(least: int, **labels: str) -> dict[str, Any]:
        given = {f"quota.scheduling.koordinator.sh/{k}": v for k, v in labels.items()}
        spec = {"min": {"cpu": least}, "max": {"cpu": 9}}
        return {"metadata": {"name": "q", "namespace": "q", "labels": given}, "spec": spec}

    async def story() -> None:
        async with serving(*CRDS) as fake, Client(Cluster(fake.url, "the test")) as client:
            await client.create(NAMESPACES, {"metadata": {"name": "q"}})
            await client.create(PODS, pod("charged"), "q")
            port = free_port()
            async with companion(Cluster(fake.url, "the test"), options(port, "")) as made:
                await until(lambda: server_of(made).port == port)
                trust = trusting(await authorities(client))
                path = "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"
                more = {"operation": "UPDATE", "namespace": "q", "oldObject": quota(1)}
                body = review(quota(1, **{"is-parent": "true"}), **more)
                found = await asked(port, trust, path, body)
                assert not found["allowed"] and "has pods" in found["status"]["message"]
                # Pods matter for no other change.
                assert (await asked(port, trust, path, review(quota(2), **more)))["allowed"]
                await client.delete(PODS, "charged", "q")
                await until(lambda: not fake.store._objects.get(fake.resource("pods")))
                assert (await asked(port, trust, path, body))["allowed"]

    asyncio.run(story())


def test_what_the_registration_says_is_kept() -> None:
    async def story() -> None:
        async with serving(*CRDS) as fake, Client(Cluster(fake.url, "the test")) as client:
            await prepared(client)
            port = free_port()
            async with companion(Cluster(fake.url, "the test"), options(port)):
                await until(lambda: _registered(fake))
                first = await client.get(MUTATING, MUTATING_NAME)
                names = [each["name"] for each in first.webhooks]
                assert len(set(names)) == len(names) == 3
                for each in first.webhooks:
                    bundle = base64.b64decode(each["clientConfig"]["caBundle"])
                    assert bundle == await authorities(client)
                    assert each["clientConfig"]["url"].startswith(f"https://127.0.0.1:{port}/")
                    assert each["failurePolicy"] == "Fail"
                # Somebody takes a webhook away.
                body = {"webhooks": first.webhooks[:1]}
                await client.patch(MUTATING, MUTATING_NAME, body)
                await until(lambda: len(_webhooks(fake, MUTATING_NAME)) == 3)
                # And somebody the whole thing.
                await client.delete(VALIDATING, VALIDATING_NAME)
                await until(lambda: _registered(fake))
                before = fake.store.version
                await asyncio.sleep(0.5)
                assert fake.store.version == before, "nothing is written that is there already"

    asyncio.run(story())


def _webhooks(fake: FakeKube, name: str) -> list[Any]:
    found = fake.store.get(fake.resource(MUTATING.plural), ("", name))
    return list(found["webhooks"])


def test_replicas_show_one_certificate_and_renew_it_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parts, "LOOK_EVERY_S", 0.2)
    monkeypatch.setattr(parts, "_HEARD_S", 0.2)
    day = datetime.timedelta(days=1)

    async def story() -> None:
        async with serving(*CRDS) as fake, Client(Cluster(fake.url, "the test")) as client:
            await prepared(client)
            cluster = Cluster(fake.url, "the test")
            one, two = free_port(), free_port()
            async with (
                companion(cluster, options(one), SERVER, KEEPER) as first,
                companion(cluster, options(two), SERVER) as second,
            ):
                await until(lambda: bool(server_of(first).port and server_of(second).port))
                trust = trusting(await authorities(client))
                for port in (one, two):
                    assert (await asked(port, trust, "/mutate-pod", review(pod("p"))))["allowed"]
                old = await client.get(SECRETS, SECRET_NAME, NAMESPACE)
                # Sixty-one days later the certificate is due, the authority is not.
                mine = next(each for part, each in first.controllers if part.name == KEEPER)
                context = mine._context  # type: ignore[attr-defined]
                now = context.wall
                object.__setattr__(context, "wall", lambda: now() + 61 * 86400)
                await until(lambda: _secret(fake)["tls.crt"] != old.data["tls.crt"])
                assert _secret(fake)["ca.crt"] == old.data["ca.crt"]
                left = expires(base64.b64decode(_secret(fake)["tls.crt"]))
                assert left - datetime.datetime.now(datetime.UTC) > 140 * day
                # Nine years and ten days later the authority is. Callers that trust the old one
                # alone do so until everybody has heard of the new one.
                object.__setattr__(context, "wall", lambda: now() + (9 * 365 + 10) * 86400)
                await until(lambda: _secret(fake)["ca.crt"] != old.data["ca.crt"])
                bundle = base64.b64decode(_secret(fake)["ca.crt"])
                assert bundle.count(b"BEGIN CERTIFICATE") == 2
                assert bundle.endswith(base64.b64decode(old.data["ca.crt"]))
                await until(
                    lambda: (
                        _webhooks(fake, MUTATING_NAME)[0]["clientConfig"]["caBundle"]
                        == _secret(fake)["ca.crt"]
                    )
                )

    asyncio.run(story())


def _secret(fake: FakeKube) -> dict[str, str]:
    found = fake.store.get(fake.resource("secrets"), (NAMESPACE, SECRET_NAME))
    return dict(found["data"])


def test_certificates_of_files_are_read_anew(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_FILES_EVERY_S", 0.05)

    def write() -> bytes:
        made = renewed(None, ("127.0.0.1",), datetime.datetime.now(datetime.UTC), trusted=False)
        assert made is not None
        (tmp_path / "ca.crt").write_bytes(made.authorities)
        (tmp_path / "tls.key").write_bytes(made.key)
        (tmp_path / "tls.crt").write_bytes(made.certificate)
        return made.authorities

    async def story() -> None:
        async with serving(*CRDS) as fake, Client(Cluster(fake.url, "the test")) as client:
            await prepared(client)
            port = free_port()
            old = write()
            chosen = options(port, webhook_cert_dir=str(tmp_path))
            async with companion(Cluster(fake.url, "the test"), chosen) as made:
                await until(lambda: server_of(made).port == port)
                await until(lambda: _registered(fake))
                found = await asked(port, trusting(old), "/mutate-pod", review(pod("p")))
                assert found["allowed"]
                bundle = _webhooks(fake, MUTATING_NAME)[0]["clientConfig"]["caBundle"]
                assert base64.b64decode(bundle) == old
                new = write()
                for _ in range(200):
                    try:
                        await asked(port, trusting(new), "/mutate-pod", review(pod("p")))
                        break
                    except aiohttp.ClientError:
                        await asyncio.sleep(0.05)
                else:
                    raise AssertionError("the new certificate is never shown")
                assert fake.requests[f"POST /api/v1/namespaces/{NAMESPACE}/secrets"] == 0

    asyncio.run(story())
