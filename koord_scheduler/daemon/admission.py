"""The parts that admit pods: the webhook server, which every replica offers, and the keeper of its
certificate and registration, which runs where the process leads."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import datetime
import os
import random
import ssl
from collections.abc import Mapping
from typing import Any

import structlog

from koord_scheduler.admission.words import Gates, gates_from
from koord_scheduler.daemon.controller import Context, Options
from koord_scheduler.daemon.world import ClusterWorld
from koord_scheduler.kube.watches import Watched
from koord_scheduler.kube.writes import NotLeadingError
from koord_scheduler.services.http import parse_address
from koord_scheduler.services.metrics import Family
from koord_scheduler.webhook.handlers import Settings
from koord_scheduler.webhook.kinds import MUTATING, SECRETS, VALIDATING, Configuration, Secret
from koord_scheduler.webhook.registration import Place, configuration, same
from koord_scheduler.webhook.server import Outcomes, Server, load_pair, tls_context
from koordlet.kube.backoff import Backoff
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError
from koordlet.kube.kinds import Kind

SECRET_NAME = "koordinator-webhook-certs"
LOOK_EVERY_S = 600.0
"""After certificates, and whether somebody changed the registration."""
_FILES_EVERY_S = 10.0
_HEARD_S = 10.0
"""Until every API server has read whom to trust. They watch it."""
_NAME, _REGISTRATION = "webhook", "webhook-registration"
_BEGINS = b"BEGIN CERTIFICATE"
_AUTHORITIES, _AUTHORITY_KEY, _CERTIFICATE, _KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"
_log = structlog.get_logger()


def gates_of(options: Options) -> Gates:
    """Raises ValueError."""
    return gates_from(str(options.extra.get("feature_gates") or ""))


def place_of(options: Options) -> Place:
    extra = options.extra
    return Place(
        namespace=options.config_namespace,
        service=extra.get("webhook_service") or Place().service,
        url=extra.get("webhook_url") or "",
        ignores_all=extra.get("webhook_failure_policy") == "Ignore",
    )


class Pair:
    """The certificate in use: of files, or of the Secret."""

    def __init__(self, context: Context) -> None:
        self._directory = str(context.options.extra.get("webhook_cert_dir") or "")
        self._secrets = None
        if not self._directory:
            self._secrets = context.watches.of(
                SECRETS,
                namespace=context.options.config_namespace,
                fields=f"metadata.name={SECRET_NAME}",
            )
        self._namespace = context.options.config_namespace
        self.changed = asyncio.Event()
        if self._secrets is not None:
            self._secrets.listen(lambda _: self.changed.set())

    async def wait(self) -> None:
        """Until it may have changed."""
        timeout_s = _FILES_EVERY_S if self._directory else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.changed.wait()
        self.changed.clear()

    def current(self) -> tuple[bytes, bytes] | None:
        """Certificate and key; None while there is none. Raises OSError for files."""
        if self._directory:
            return (
                _read(os.path.join(self._directory, _CERTIFICATE)),
                _read(os.path.join(self._directory, _KEY)),
            )
        assert self._secrets is not None
        secret = self._secrets.get(SECRET_NAME, self._namespace)
        data = decoded(secret) if secret is not None else {}
        if not data.get(_CERTIFICATE) or not data.get(_KEY):
            return None
        return data[_CERTIFICATE], data[_KEY]


class WebhookServer:
    """``port``: the one that was had, 0 while it does not listen."""

    def __init__(self, context: Context) -> None:
        options = context.options
        self._gates = gates_of(options)
        self._address = parse_address(str(options.extra.get("webhook_addr") or ":9876"))
        self._unready = context.unready
        if self._address is not None:
            self._unready[_NAME] = "does not listen yet"
        self._client_authorities = str(options.extra.get("webhook_client_ca") or "")
        self._pair = Pair(context)
        self._world = ClusterWorld(context, self._gates)
        self._outcomes = Outcomes()
        self.port = 0
        self._settings = Settings(
            self._gates,
            binding=self._world.binding_rules(),
            config_namespace=options.config_namespace,
            config_name=options.config_name,
            names_needed=bool(options.extra.get("node_strategy_name_need_check")),
        )
        outcomes = self._outcomes
        context.metrics.add(
            Family(
                "koord_scheduler_admission_requests_total",
                "counter",
                "Requests of the API server to the webhooks, by path and outcome.",
                ("path", "outcome"),
                lambda: [(key, float(n)) for key, n in outcomes.counts.items()],
            )
        )
        context.metrics.add(
            Family(
                "koord_scheduler_admission_seconds_total",
                "counter",
                "Time that requests to the webhooks took, by path.",
                ("path",),
                lambda: [((path,), spent) for path, spent in outcomes.seconds.items()],
            )
        )

        context.metrics.add(
            Family(
                "koord_scheduler_admission_connections_dropped_total",
                "counter",
                "Connections to the webhooks that were ended early, by reason.",
                ("reason",),
                lambda: [((reason,), float(n)) for reason, n in outcomes.dropped.items()],
            )
        )

    async def run(self) -> None:
        if self._address is None:
            return
        await self._world.until_known()
        tls = tls_context(self._client_authorities)
        shown: tuple[bytes, bytes] | None = await self._first(tls)
        server = Server(self._world, self._settings, self._outcomes)
        host, port = self._address
        async with server.serving(tls, host or None, port) as self.port:
            _log.info("webhooks listen", port=self.port)
            self._unready.pop(_NAME, None)
            try:
                while True:
                    await self._pair.wait()
                    shown = self._load(tls, shown)
            finally:
                self.port = 0

    async def _first(self, tls: ssl.SSLContext) -> tuple[bytes, bytes]:
        while True:
            shown = self._load(tls, None)
            if shown is not None:
                return shown
            await self._pair.wait()

    def _load(
        self, tls: ssl.SSLContext, shown: tuple[bytes, bytes] | None
    ) -> tuple[bytes, bytes] | None:
        try:
            pair = self._pair.current()
            if pair is None or pair == shown:
                return shown
            load_pair(tls, *pair)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            # What is shown so far may be good for weeks.
            _log.error("the certificate of the webhooks cannot be used", error=str(error))
            return shown
        _log.info("webhooks have a certificate")
        return pair


class WebhookKeeper:
    """Makes and renews the certificate in the Secret, and keeps the registration as declared."""

    def __init__(self, context: Context) -> None:
        self._context = context
        options = context.options
        self._gates, self._place = gates_of(options), place_of(options)
        self._directory = str(options.extra.get("webhook_cert_dir") or "")
        self._changed = asyncio.Event()
        self._watched: list[tuple[Watched[Configuration], str]] = []
        for kind in (MUTATING, VALIDATING):
            wanted = configuration(self._gates, self._place, b"", mutating=kind is MUTATING)
            name = wanted["metadata"]["name"]
            watched = context.watches.of(kind, fields=f"metadata.name={name}")
            watched.listen(self._on_change)
            if wanted["webhooks"]:
                self._watched.append((watched, name))
        # Not of those that lead alone: whoever waits for the rollout may create pods then, and they
        # shall be what admission makes of them.
        if self._watched:
            context.unready[_REGISTRATION] = "the API server is not told of the webhooks yet"

    def _on_change(self, _changes: object) -> None:
        self._changed.set()
        if all(_stands(watched, name) for watched, name in self._watched):
            self._context.unready.pop(_REGISTRATION, None)

    async def run(self) -> None:
        backoff = Backoff(random.random)
        while True:
            self._changed.clear()
            try:
                await self._once()
            except NotLeadingError:
                # For an instant: who no longer leads is cancelled.
                await asyncio.sleep(backoff.next_s())
                continue
            except (KubeError, CredentialsError) as error:
                if not (isinstance(error, RefusedError) and error.conflict):
                    _log.warning("registration of the webhooks", error=str(error))
                await asyncio.sleep(backoff.next_s())
                continue
            except OSError as error:
                _log.error("certificate of the webhooks", error=str(error))
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._changed.wait()

    async def _once(self) -> None:
        if self._directory:
            path = os.path.join(self._directory, _AUTHORITIES)
            await self._register(_read(path) if os.path.exists(path) else b"")
            return
        trusted = False
        # A new authority is told first, and signs when everybody knows it: three steps at most.
        for _ in range(4):
            authorities, changed = await self._renew(trusted=trusted)
            await self._register(authorities)
            if trusted and not changed:
                return
            if changed and authorities.count(_BEGINS) > 1:
                await asyncio.sleep(_HEARD_S)
            trusted = True

    async def _renew(self, *, trusted: bool) -> tuple[bytes, bool]:
        # Loaded where certificates are made, which is where the process leads.
        from koord_scheduler.webhook.certificates import Bundle, renewed

        context = self._context
        namespace = context.options.config_namespace
        secret: Secret | None = None
        try:
            secret = await context.client.get(SECRETS, SECRET_NAME, namespace)
        except RefusedError as error:
            if not error.missing:
                raise
        data = decoded(secret) if secret is not None else {}
        fields = (_AUTHORITIES, _AUTHORITY_KEY, _CERTIFICATE, _KEY)
        bundle = Bundle(*(data[each] for each in fields)) if data.keys() >= set(fields) else None
        now = datetime.datetime.fromtimestamp(context.wall(), datetime.UTC)
        new = renewed(bundle, self._place.names, now, trusted=trusted)
        if new is None:
            return data[_AUTHORITIES], False
        texts = dict(zip(fields, (base64.b64encode(each).decode() for each in new), strict=True))
        body: dict[str, Any] = {
            "metadata": {"name": SECRET_NAME, "namespace": namespace},
            "type": "Opaque",
            "data": texts,
        }
        if secret is None:
            await context.writes.create(SECRETS, body, namespace)
        else:
            body["metadata"]["resourceVersion"] = secret.metadata.resource_version
            # Koordinator's manager has its own keys there, for the day on which it comes back.
            body["data"] = {**secret.data, **texts}
            await context.writes.replace(SECRETS, SECRET_NAME, body, namespace)
        _log.info("certificate of the webhooks renewed", names=",".join(self._place.names))
        return new.authorities, True

    async def _register(self, authorities: bytes) -> None:
        for kind in (MUTATING, VALIDATING):
            wanted = configuration(self._gates, self._place, authorities, mutating=kind is MUTATING)
            await self._keep(kind, wanted, trust=bool(authorities))

    async def _keep(
        self, kind: Kind[Configuration], wanted: Mapping[str, Any], *, trust: bool
    ) -> None:
        name = wanted["metadata"]["name"]
        context = self._context
        try:
            found = await context.client.get(kind, name)
        except RefusedError as error:
            if not error.missing:
                raise
            if wanted["webhooks"]:
                await context.writes.create(kind, wanted)
            return
        if same(found.webhooks, wanted["webhooks"], trust=trust):
            return
        webhooks = list(wanted["webhooks"])
        if not trust:
            # Whoever says whom to trust (cert-manager) has said so already.
            said = {each.get("name"): each.get("clientConfig", {}) for each in found.webhooks}
            webhooks = [_with_trust(each, said.get(each["name"], {})) for each in webhooks]
        version = found.metadata.resource_version
        body = {"metadata": {"resourceVersion": version}, "webhooks": webhooks}
        await context.writes.patch(kind, name, body)


def _stands(watched: Watched[Configuration], name: str) -> bool:
    """Return whether there is a registration. In an upgrade it is that of the release before until
    somebody of this one leads, who may have to wait until others are ready."""
    found = watched.get(name)
    return found is not None and bool(found.webhooks)


def _with_trust(webhook: dict[str, Any], client: Mapping[str, Any]) -> dict[str, Any]:
    if "caBundle" not in client:
        return webhook
    bundle = {"caBundle": client["caBundle"]}
    return {**webhook, "clientConfig": {**webhook["clientConfig"], **bundle}}


def decoded(secret: Secret) -> dict[str, bytes]:
    """Fields that are no base64 are left out."""
    found = {}
    for key, text in secret.data.items():
        with contextlib.suppress(binascii.Error):
            found[key] = base64.b64decode(text, validate=True)
    return found


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(1 << 20)


def make_server(context: Context) -> WebhookServer:
    return WebhookServer(context)


def make_keeper(context: Context) -> WebhookKeeper:
    return WebhookKeeper(context)
