"""What kubelet asked for, before any hook.

A proxy that keeps what it sent to the runtime (the reference's does,
docs/reference/hooks.md 4.6) sends our
own answers back as the container's resources in later calls. Taken for kubelet's wish, a scaled
quota would be scaled again at each update. Kept over restarts of koordlet for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlet.decision.resource import Resource, Value
from koordlet.decision.strategy import Stage
from koordlet.state.reported_file import ReportedFile

_Values = Mapping[Resource, Value]

MAX_PODS = 4096


class Wishes(msgspec.Struct, frozen=True):
    """Of one pod, by container name: what kubelet asked for, and our answers."""

    uid: str
    asked: Mapping[str, _Values]
    answered: Mapping[str, _Values]


class Requested:
    """Remembered by pod uid, of the pods last heard of, and container name."""

    def __init__(self, file: ReportedFile[Wishes] | None = None) -> None:
        self._file = file
        self._pods = {each.uid: each for each in file.load()} if file is not None else {}

    def asked(self, stage: Stage, uid: str, name: str, given: _Values) -> dict[Resource, Value]:
        """``given``: the resources of a request. What equals our last answer is ours, and stands
        for what was asked for before; what a request leaves open stays as it was."""
        old = self._pods.get(uid) or Wishes(uid, {}, {})
        before, ours = old.asked.get(name, {}), old.answered.get(name, {})
        if stage is Stage.CREATE_CONTAINER:
            before, ours = {}, {}
        new = {resource: value for resource, value in given.items() if ours.get(resource) != value}
        asked = {**before, **new}
        self._keep(Wishes(uid, {**old.asked, name: asked}, {**old.answered, name: ours}))
        return asked

    def answered(self, uid: str, name: str, values: _Values) -> None:
        old = self._pods.get(uid)
        if old is not None and name in old.asked:
            ours = {**old.answered.get(name, {}), **values}
            self._keep(Wishes(uid, old.asked, {**old.answered, name: ours}))

    def forget(self, uid: str, name: str) -> None:
        old = self._pods.get(uid)
        if old is not None:
            self._keep(Wishes(uid, _without(old.asked, name), _without(old.answered, name)))

    def forget_pod(self, uid: str) -> None:
        if self._pods.pop(uid, None) is not None:
            self._save(uid)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _keep(self, wishes: Wishes) -> None:
        old = self._pods.pop(wishes.uid, None)
        self._pods[wishes.uid] = old if old == wishes else wishes  # what is the same is not written
        self._save(wishes.uid)
        if len(self._pods) > MAX_PODS:
            self.forget_pod(next(iter(self._pods)))

    def _save(self, uid: str) -> None:
        if self._file is not None:
            self._file.save(self._pods, (uid,))


def _without(values: Mapping[str, _Values], name: str) -> Mapping[str, _Values]:
    return {each: value for each, value in values.items() if each != name}
