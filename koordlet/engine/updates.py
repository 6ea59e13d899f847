"""Which containers need new values in the runtime (NRI UpdateContainers). Pure.

A runtime keeps the resources of each container and writes all of them whenever one changes. A
value that koordlet changed behind its back would be lost then, so it is told.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence

from koordlet.decision.answer import Combined, Wanted
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.plan import Decision
from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import is_guest_handler
from koordlet.decision.why import Why
from koordlet.hooks.delivery import FIELDS, UNASKED
from koordlet.state.merge import bare_id

Values = dict[Resource, Value]
Claims = dict[Resource, Wanted]

_UPDATABLE = frozenset(
    resource for resource, fields in FIELDS.items() if fields.nri.startswith("resources.")
) - {Resource.RESCTRL_GROUP}
"""A runtime takes the class of cache at creation alone, and passes over it in updates."""
_GIVEN_UP = Why("nri.given-up", "koordlet does not set this any more; what kubelet asked for")


class Updates:
    """What was last sent to the runtime about each container, by bare id. ``_held``: what it had
    stored when it was synchronized, of containers that nobody updated since."""

    def __init__(self) -> None:
        self._sent: dict[str, Values] = {}
        self._held: dict[str, Mapping[Resource, Value]] = {}
        self._nothing_due: tuple[object, object] | None = None
        """The pods and decisions, kept as long as nothing changes, for which nothing was due."""

    def synchronized(self, held: Mapping[str, Mapping[Resource, Value]]) -> None:
        """The runtime says what it has stored, so what it got before does not count unless
        it is in there: an update of kubelet may have come while nobody was connected."""
        self._nothing_due = None
        self._held = dict(held)
        self._sent = {
            bare: {r: v for r, v in self._sent.get(bare, {}).items() if _holds(found, r, v)}
            for bare, found in held.items()
        }

    def answered(self, container_id: str, combined: Combined) -> None:
        """The runtime asked about a container and got this."""
        self._nothing_due = None
        self._held.pop(bare_id(container_id), None)
        self._sent[bare_id(container_id)] = {
            wanted.resource: wanted.value
            for wanted in combined.settings
            if wanted.resource in _UPDATABLE
        }

    def due(
        self, pods: Iterable[PodFacts], decisions: Sequence[Decision]
    ) -> Mapping[str, Combined]:
        """Bare container id -> what to tell. ``decisions``: of hooks, about everything; a
        container that no longer is in ``pods`` is forgotten."""
        asked = (pods, decisions)
        if self._nothing_due is not None and all(map(operator.is_, asked, self._nothing_due)):
            return {}
        settings: dict[str, Claims] = {}
        for plan in (decision.plan for decision in decisions):
            for setting in plan.settings:
                if setting.resource in _UPDATABLE:
                    claims = settings.setdefault(setting.cgroup, {})
                    claims[setting.resource] = Wanted(
                        plan.owner, setting.resource, setting.value, setting.why
                    )
        found, alive = {}, set()
        # A guest gets its values when the runtime asks: nothing is reconciled for it.
        hosted = (pod for pod in pods if not is_guest_handler(pod.runtime_handler or ""))
        for container in (container for pod in hosted for container in pod.containers):
            bare = bare_id(container.id)
            alive.add(bare)
            if container.is_sandbox or container.cgroup is None:
                continue
            changes = self._changes(bare, container, settings.get(container.cgroup, {}))
            if changes:
                found[bare] = Combined(tuple(changes))
        self._sent = {bare: sent for bare, sent in self._sent.items() if bare in alive}
        self._held = {bare: held for bare, held in self._held.items() if bare in alive}
        self._nothing_due = None if found else asked
        return found

    def pushed(self, wanted: Mapping[str, Combined]) -> None:
        """The runtime has got the updates; what it refused is tried again only when it changes."""
        for bare, combined in wanted.items():
            sent = self._sent.setdefault(bare, {})
            self._held.pop(bare, None)
            for each in combined.settings:
                if each.why is _GIVEN_UP:
                    sent.pop(each.resource, None)
                else:
                    sent[each.resource] = each.value

    def _changes(self, bare: str, container: ContainerFacts, wanted: Claims) -> list[Wanted]:
        sent = self._sent.setdefault(bare, {})
        if (held := self._held.get(bare)) is not None:
            # Of the run before, or while nobody was connected: it has the value already.
            sent |= {r: each.value for r, each in wanted.items() if _holds(held, r, each.value)}
        changes = [each for each in wanted.values() if sent.get(each.resource) != each.value]
        for resource in sent.keys() - wanted.keys():
            value = (container.requested or {}).get(resource, UNASKED.get(resource))
            if value is not None:
                changes.append(Wanted("nri", resource, value, _GIVEN_UP))
        return changes


def _holds(held: Mapping[Resource, Value], resource: Resource, value: Value) -> bool:
    """A runtime leaves out what nobody has limited."""
    return held.get(resource, UNASKED.get(resource)) == value
