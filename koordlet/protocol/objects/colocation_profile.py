"""ClusterColocationProfile: what admission changes of the pods that it selects
(docs/reference/protocol.md 4.9)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from koordlet.protocol.selector import LabelSelector
from koordlet.protocol.slo import Int32, Section


class ClusterColocationProfileSpec(Section, frozen=True):
    namespace_selector: Annotated[
        LabelSelector | None, Meta(description="Namespaces of the pods. Unset or empty: all.")
    ] = None
    selector: Annotated[LabelSelector | None, Meta(description="Pods. Unset or empty: all.")] = None
    probability: Annotated[
        int | str | None,
        Meta(description="Of the selected pods, so many in a hundred: 30 or 30%. Unset: all."),
    ] = None
    qos_class: Annotated[
        Literal["LSE", "LSR", "LS", "BE", "SYSTEM"] | None,
        Meta(description="Label koordinator.sh/qosClass of the pod."),
    ] = None
    priority_class_name: Annotated[
        str | None, Meta(description="PriorityClass of the pod, with its value and its policy.")
    ] = None
    koordinator_priority: Annotated[
        Int32 | None, Meta(description="Label koordinator.sh/priority of the pod.")
    ] = None
    scheduler_name: Annotated[str | None, Meta(description="Scheduler of the pod.")] = None
    labels: Annotated[
        dict[str, str] | None, Meta(description="Labels that the pod gets, over those it has.")
    ] = None
    annotations: Annotated[
        dict[str, str] | None, Meta(description="Annotations that the pod gets.")
    ] = None
    label_keys_mapping: Annotated[
        dict[str, str] | None,
        Meta(description="Old key to new key: the pod's label is copied under the new one."),
    ] = None
    annotation_keys_mapping: Annotated[
        dict[str, str] | None, Meta(description="The same for annotations.")
    ] = None
    label_suffixes: Annotated[
        dict[str, str] | None,
        Meta(description="Key to suffix: appended to the label where the pod has it."),
    ] = None
    patch: Annotated[
        dict[str, Any] | None, Meta(description="A strategic merge patch of the pod.")
    ] = None


class ClusterColocationProfileStatus(Section, frozen=True):
    """Empty: nobody writes it."""
