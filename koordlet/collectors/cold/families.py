"""What the metrics page shows of cold memory. The reference has no such families."""

from __future__ import annotations

from typing import NamedTuple

from koordlet.decision.family import Family, Kind, Labels

_POD = ("pod_uid", "pod_name", "pod_namespace")
_CONTAINER = ("container_id", "container_name", *_POD)
_APP = ("host_application_name",)


class Families(NamedTuple):
    """Of one sort of subject. ``cold`` has labels ``pages`` (anon, file or mapped) and ``method``
    behind those of the subject, ``with_hot`` has ``method``."""

    cold: Family
    with_hot: Family
    refault: Family | None = None
    confirmed: Family | None = None


def _families(subject: str, words: str, labels: Labels, *, reclaimed: bool = False) -> Families:
    name = f"{subject}_memory"
    cold = Family(
        f"{name}_cold_bytes",
        Kind.GAUGE,
        f"Memory of {words} that nobody has used for a while, bytes",
        (*labels, "pages", "method"),
    )
    with_hot = Family(
        f"{name}_with_hot_page_cache_bytes",
        Kind.GAUGE,
        f"Memory of {words} with page cache, without what of that is cold, bytes",
        (*labels, "method"),
    )
    if not reclaimed:
        return Families(cold, with_hot)
    refault = Family(
        f"{name}_refault_bytes_per_second",
        Kind.GAUGE,
        f"Memory of {words} that was reclaimed and wanted again, bytes a second",
        labels,
    )
    confirmed = Family(
        f"{name}_confirmed_cold_bytes",
        Kind.GAUGE,
        f"Memory of {words} that koordlet had reclaimed in the last ten minutes and nobody wanted "
        "again, bytes",
        labels,
    )
    return Families(cold, with_hot, refault, confirmed)


NODE = _families("node", "the node", ())
PODS = _families("pod", "a pod", _POD, reclaimed=True)
CONTAINERS = _families("container", "a container", _CONTAINER)
APPLICATIONS = _families("host_application", "a host application", _APP, reclaimed=True)
SCAN_CPU_CORES = Family(
    "cold_scan_cpu_cores", Kind.GAUGE, "CPU that finding cold memory takes, cores"
)
FAMILIES = (
    *(
        family
        for families in (NODE, PODS, CONTAINERS, APPLICATIONS)
        for family in families
        if family is not None
    ),
    SCAN_CPU_CORES,
)
