"""What admission knows of the cluster, from the watches of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

from koord_scheduler.admission.others import BindingRules
from koord_scheduler.admission.pod_validation import LabelRule, label_rules
from koord_scheduler.admission.profiles import PriorityClassValue, Profile
from koord_scheduler.admission.quotas import Quota, QuotaProfile, Quotas
from koord_scheduler.admission.words import AdmissionError, Gates, Tree
from koord_scheduler.daemon.controller import Context
from koord_scheduler.kube.quota_shapes import (
    QUOTA_PROFILES,
    QUOTAS,
    ElasticQuota,
    quota_of,
    quota_profile_of,
)
from koord_scheduler.kube.shapes import CONFIG_MAPS, NODES
from koord_scheduler.kube.watches import Watched
from koord_scheduler.webhook.kinds import (
    NAMESPACES,
    PRIORITY_CLASSES,
    PROFILES,
)
from koordlet.kube.errors import RefusedError
from koordlet.kube.kinds import PODS
from koordlet.kube.mirror import Key
from koordlet.protocol import keys
from koordlet.protocol.errors import ProtocolError
from koordlet.serving.listener import Pace

RULES_NAME = "pod-enhanced-validator-config"
_MOST_NAMESPACES = 64
ASKED_PER_S, ASKED_BURST = 10.0, 20
"""Requests to the API server that reviews cause: whoever reaches the port must not use up those of
the controllers."""
_MOST_WAITING = 50
_LOOKS, _LOOK_S = 5, 0.1
"""Looks for a namespace in the watch, and the time between them."""
_log = structlog.get_logger()


class ClusterWorld:
    """Watches what the gates need, and nothing else. A kind of Koordinator whose definition was not
    applied counts as one without objects: pods must be admitted all the same."""

    def __init__(self, context: Context, gates: Gates) -> None:
        self._context, self._gates = context, gates
        of = context.watches.of
        options = context.options
        self._profiles = of(PROFILES, optional=True)
        self._namespaces = of(NAMESPACES)
        self._classes = of(PRIORITY_CLASSES)
        watched: list[Watched[Any]] = [self._profiles, self._namespaces, self._classes]
        self._quotas = self._quota_profiles = self._nodes = self._config = self._rules = None
        if (
            gates.elastic_mutating_webhook
            or gates.elastic_validating_webhook
            or gates.enable_quota_admission
            or gates.multi_quota_tree
        ):
            self._quotas = of(QUOTAS, optional=True)
            self._quotas.listen(self._forget)
            watched.append(self._quotas)
        if gates.multi_quota_tree:
            self._quota_profiles = of(QUOTA_PROFILES, optional=True)
            watched.append(self._quota_profiles)
        if gates.config_map_validating_webhook or gates.node_validating_webhook:
            self._nodes = of(NODES)
            # The same watch as that of the controllers.
            self._config = of(
                CONFIG_MAPS,
                namespace=options.config_namespace,
                fields=f"metadata.name={options.config_name}",
            )
            watched += [self._nodes, self._config]
        if gates.enable_pod_enhanced_validator:
            self._rules = of(
                CONFIG_MAPS,
                namespace=options.config_namespace,
                fields=f"metadata.name={RULES_NAME}",
            )
            watched.append(self._rules)
        self._watched = watched
        self._asked = Pace(ASKED_PER_S, ASKED_BURST)
        self._forest: Quotas | None = None
        self._read: dict[Key, tuple[ElasticQuota, Quota]] = {}
        self._rules_of: tuple[object, tuple[LabelRule, ...]] = (None, ())

    async def until_known(self) -> None:
        for each in self._watched:
            await each.until_known()

    def _forget(self, _changes: object) -> None:
        self._forest = None

    def profiles(self) -> tuple[Profile, ...]:
        return tuple(each.profile for each in self._profiles.objects.values())

    def priority_classes(self) -> Mapping[str, PriorityClassValue]:
        return {key.name: each.facts for key, each in self._classes.objects.items()}

    def quotas(self) -> Quotas:
        """Read anew as far as they changed: the scheduler writes figures to them all the time."""
        if self._forest is None:
            known, self._read = self._read, {}
            for key, each in self._quotas.objects.items() if self._quotas else ():
                before = known.get(key)
                if before is not None and before[0] is each:
                    self._read[key] = before
                    continue
                try:
                    self._read[key] = (each, quota_of(each))
                except AdmissionError as error:
                    _log.warning("a quota is passed over", quota="/".join(key), error=error.message)
            self._forest = Quotas(tuple(quota for _, quota in self._read.values()))
        return self._forest

    def quota_profiles(self) -> tuple[QuotaProfile, ...]:
        found = self._quota_profiles
        return tuple(map(quota_profile_of, found.objects.values())) if found else ()

    def nodes(self) -> Mapping[str, Mapping[str, str]]:
        if self._nodes is None:
            return {}
        return {key.name: each.metadata.labels for key, each in self._nodes.objects.items()}

    def config(self) -> Mapping[str, str]:
        options = self._context.options
        if self._config is None:
            return {}
        found = self._config.get(options.config_name, options.config_namespace)
        return found.data if found is not None else {}

    def label_rules(self) -> tuple[LabelRule, ...]:
        """A ConfigMap that cannot be read leaves in force what stood there before."""
        if self._rules is None:
            return ()
        found = self._rules.get(RULES_NAME, self._context.options.config_namespace)
        if found is not self._rules_of[0]:
            rules: tuple[LabelRule, ...] = ()
            try:
                rules = label_rules(found.data) if found is not None else ()
            except ProtocolError as error:
                _log.error(f"ConfigMap {RULES_NAME} cannot be read", error=str(error))
                rules = self._rules_of[1]
            self._rules_of = (found, rules)
        return self._rules_of[1]

    async def namespace_labels(self, name: str) -> Mapping[str, str]:
        found = self._namespaces.get(name)
        if found is None and name:
            # It was made a moment ago: the watch mostly is faster than whoever else asks.
            for _ in range(_LOOKS):
                await asyncio.sleep(_LOOK_S)
                found = self._namespaces.get(name)
                if found is not None:
                    return found.metadata.labels
            await self._turn()
            found = await self._context.client.get(NAMESPACES, name)
        return found.metadata.labels if found is not None else {}

    async def pod(self, namespace: str, name: str) -> Tree | None:
        await self._turn()
        try:
            return await self._context.client.tree(PODS.path(namespace, name))
        except RefusedError as error:
            if error.missing:
                return None
            raise

    async def has_pods(self, quota: str, namespaces: tuple[str, ...]) -> bool:
        client, key = self._context.client, keys.QUOTA_NAME.name
        await self._turn()
        page = await client.page(PODS, query={"labelSelector": f"{key}={quota}", "limit": "1"})
        if page.items:
            return True
        for namespace in namespaces[:_MOST_NAMESPACES]:
            query = {"labelSelector": f"!{key}", "limit": "1"}
            await self._turn()
            page = await client.page(PODS, namespace=namespace, query=query)
            if page.items:
                return True
        return False

    async def _turn(self) -> None:
        """Wait for leave to ask the API server. Raises AdmissionError where too many wait."""
        if self._asked.left < -_MOST_WAITING:
            raise AdmissionError(
                "too many reviews ask the API server for something: try again", 500
            )
        await self._asked.turn()

    def binding_rules(self) -> BindingRules:
        extra = self._context.options.extra

        def words(name: str, default: str = "") -> tuple[str, ...]:
            text = str(extra.get(name, default) or "")
            return tuple(filter(None, (each.strip() for each in text.split(","))))

        bypass = keys.BINDING_ADMISSION_BYPASS.name
        return BindingRules(
            users=words("binding_admission_user_name"),
            namespaces=frozenset(words("binding_admission_namespaces")),
            excluded=frozenset(words("binding_admission_exclude_namespaces", "kube-system")),
            bypass_labels=frozenset(words("binding_admission_bypass_labels", bypass)),
            bypass_annotations=frozenset(words("binding_admission_bypass_annotations")),
            dry_run=bool(extra.get("binding_admission_dry_run")),
        )
