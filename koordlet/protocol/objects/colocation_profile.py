"""ClusterColocationProfile: what admission changes of the pods that it selects
(docs/reference/protocol.md 4.9)."""

from __future__ import annotations

from typing import Any, Literal

from koordlet.protocol.selector import LabelSelector
from koordlet.protocol.slo import Int32, Section


class ClusterColocationProfileSpec(Section, frozen=True):
    namespace_selector: LabelSelector | None = None
    """Namespaces of the pods. Unset or empty: all."""
    selector: LabelSelector | None = None
    """Pods. Unset or empty: all."""
    probability: int | str | None = None
    """Percentage of the selected pods that are changed: 30 or 30%. Unset: all."""
    qos_class: Literal["LSE", "LSR", "LS", "BE", "SYSTEM"] | None = None
    """Label koordinator.sh/qosClass of the pod."""
    priority_class_name: str | None = None
    """PriorityClass of the pod, with its value and its policy."""
    koordinator_priority: Int32 | None = None
    """Label koordinator.sh/priority of the pod."""
    scheduler_name: str | None = None
    """Scheduler of the pod."""
    labels: dict[str, str] | None = None
    """Labels that the pod gets, over those it has."""
    annotations: dict[str, str] | None = None
    """Annotations that the pod gets."""
    label_keys_mapping: dict[str, str] | None = None
    """Old key to new key: the pod's label is copied under the new one."""
    annotation_keys_mapping: dict[str, str] | None = None
    """Old key to new key: the pod's annotation is copied under the new one."""
    label_suffixes: dict[str, str] | None = None
    """Key to suffix: appended to the label where the pod has it."""
    patch: dict[str, Any] | None = None
    """Strategic merge patch of the pod."""
