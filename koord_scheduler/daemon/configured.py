"""``slo-controller-config`` as it is in force, for all controllers, and what is wrong with it told
where users look (docs/reference/central.md 1.2)."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from koord_scheduler.kube.shapes import CONFIG_MAPS, ConfigMap
from koord_scheduler.kube.watches import Watched, Watches
from koord_scheduler.overcommit.configuration import Configuration, load
from koordlet.kube.events import Events, Subject
from koordlet.kube.mirror import Change

_log = structlog.get_logger()


class Configured:
    """``current`` is None until the API server said whether there is a ConfigMap.

    A ConfigMap that is deleted changes nothing until the process starts anew, as in the reference:
    the overcommitted resources of a whole cluster must not hang on one slip of the hand.
    """

    def __init__(
        self,
        watches: Watches,
        events: Events,
        leads: Callable[[], bool],
        namespace: str,
        name: str,
    ) -> None:
        self.current: Configuration | None = None
        self._watches, self._events, self._leads = watches, events, leads
        self._namespace, self._name = namespace, name
        self._watched: Watched[ConfigMap] | None = None
        self._listeners: list[Callable[[], None]] = []
        self._object: ConfigMap | None = None

    def watch(self) -> None:
        """For each part that needs it, while it is made."""
        fields = f"metadata.name={self._name}"
        watched = self._watches.of(CONFIG_MAPS, namespace=self._namespace, fields=fields)
        if self._watched is None:
            self._watched = watched
            watched.listen(self._take)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """``listener`` is called after each effective change. Returns what ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def tell(self) -> None:
        """Events of what was refused: by who begins to lead, and at each change while it leads."""
        if self.current is None or self._object is None:
            return
        meta = self._object.metadata
        subject = Subject("v1", "ConfigMap", meta.namespace, meta.name, meta.uid)
        for each in self.current.outcomes:
            if each.refused:
                text = f"{each.key}: {each.message}"
                self._events.tell(subject, "Warning", each.reason, text)

    def _take(self, changes: tuple[Change[ConfigMap], ...]) -> None:
        if not changes:
            self._object = None
            self._load(None)
        for change in changes:
            if change.new is None:
                _log.warning("the ConfigMap is gone; what it said stays in force until a restart")
            else:
                self._object = change.new
                self._load(change.new.data)

    def _load(self, data: dict[str, str] | None) -> None:
        before, self.current = self.current, load(data, self.current)
        if data is None:
            _log.warning("no ConfigMap: defaults", namespace=self._namespace, name=self._name)
        for each in self.current.outcomes:
            log = _log.warning if each.refused else _log.info
            log("configuration", key=each.key, message=each.message, refused=each.refused)
        if data is not None:
            _log.info("configuration read", keys=",".join(sorted(data)))
        outcomes = before.outcomes if before is not None else ()
        if outcomes != self.current.outcomes and self._leads():
            self.tell()
        if before != self.current:
            for listener in tuple(self._listeners):
                listener()
