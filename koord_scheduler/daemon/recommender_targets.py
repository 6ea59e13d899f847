"""Which pods belong to which recommendation, kept up to date by the watches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from koord_scheduler.kube.recommend_shapes import Recommendation
from koord_scheduler.kube.shapes import Pod
from koord_scheduler.recommend.target import is_about, target_problems, workloads
from koordlet.kube.mirror import Change, Key

_HASHES = ("pod-template-hash", "controller-revision-hash")
_NOBODY: frozenset[Key] = frozenset()


class Targets:
    """``pods``: of each recommendation. Only pods that are on a node and run, or will, count.

    ``known``: gives the pods of the cluster, as the watch has them now.
    """

    def __init__(self, known: Callable[[], Mapping[Key, Pod]]) -> None:
        self.pods: dict[Key, set[Key]] = {}
        self._known = known
        self._in_namespace: dict[str, set[Key]] | None = None
        """Pods of the cluster by namespace; None until there is a recommendation. Anybody may make
        a thousand of them, and each would look through all pods."""
        self._recommendations: dict[Key, Recommendation] = {}
        self._by_namespace: dict[str, set[Key]] = {}
        self._of_pod: dict[Key, frozenset[Key]] = {}
        self._node_of: dict[Key, str] = {}
        self._on_node: dict[str, set[Key]] = {}

    def set(self, key: Key, item: Recommendation) -> None:
        """New, or with another target."""
        self.drop(key)
        self.pods[key] = set()
        if target_problems(item.spec.target):
            return
        self._recommendations[key] = item
        self._by_namespace.setdefault(key.namespace, set()).add(key)
        if self._in_namespace is None:
            self._in_namespace = {}
            for each in self._known():
                self._in_namespace.setdefault(each.namespace, set()).add(each)
        pods = self._known()
        for each in self._in_namespace.get(key.namespace, ()):
            pod = pods.get(each)
            if pod is not None:
                self._place(each, pod)

    def drop(self, key: Key) -> None:
        for pod in self.pods.pop(key, ()):
            left = self._of_pod[pod] - {key}
            if left:
                self._of_pod[pod] = left
            else:
                self._remove(pod)
        self._recommendations.pop(key, None)
        others = self._by_namespace.get(key.namespace, set())
        others.discard(key)
        if not others:
            self._by_namespace.pop(key.namespace, None)

    def take(self, changes: Iterable[Change[Pod]]) -> None:
        for key, _, new in changes:
            self._note(key, new is not None)
            if key.namespace not in self._by_namespace and key not in self._of_pod:
                continue
            self._remove(key)
            if new is not None:
                self._place(key, new)

    def on(self, node: str) -> Iterable[tuple[Key, frozenset[Key]]]:
        """Pods of targets on ``node``, each with the recommendations that it counts for."""
        for pod in self._on_node.get(node, ()):
            yield pod, self._of_pod[pod]

    def _note(self, key: Key, there: bool) -> None:
        if self._in_namespace is None:
            return
        pods = self._in_namespace.setdefault(key.namespace, set())
        if there:
            pods.add(key)
            return
        pods.discard(key)
        if not pods:
            del self._in_namespace[key.namespace]

    def _place(self, key: Key, pod: Pod) -> None:
        if not pod.facts.counts or not pod.facts.node:
            return
        owners = workloads(
            ((o.api_version, o.kind, o.name) for o in pod.metadata.owner_references),
            pod.metadata.labels,
        )
        labels = pod.metadata.labels
        found = frozenset(
            each
            for each in self._by_namespace.get(key.namespace, ())
            if is_about(self._recommendations[each].spec.target, owners, labels)
        )
        if not found:
            return
        self._of_pod[key] = found
        self._node_of[key] = pod.facts.node
        self._on_node.setdefault(pod.facts.node, set()).add(key)
        for each in found:
            self.pods[each].add(key)

    def _remove(self, key: Key) -> None:
        for each in self._of_pod.pop(key, _NOBODY):
            if each in self.pods:
                self.pods[each].discard(key)
        node = self._node_of.pop(key, "")
        there = self._on_node.get(node)
        if there is not None:
            there.discard(key)
            if not there:
                del self._on_node[node]


def template_of(pod: Pod) -> str:
    """The same for pods that have the same containers, as far as anybody says so."""
    labels, owners = pod.metadata.labels, pod.metadata.owner_references
    hashed = next((labels[each] for each in _HASHES if each in labels), "")
    owner = owners[0].name if owners else pod.metadata.name
    return f"{owner} {hashed}"
