"""Abilities of a runtime, by the versions that it tells."""

from __future__ import annotations

import re

FIRST_SAFE = (0, 12, 1)
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(-)?")


_KNOWS_POD_UPDATES = (0, 10)
_CONTAINERD_WITH_IT = (2, 2)


def tells_pod_updates(runtime: str, version: str, nri_version: str) -> bool:
    """Return whether it knows the event UpdatePodSandbox: an older one ends the session of a plugin
    that asks for it. NRI has it since 0.10 and tells its version since 0.12; containerd 2.2 is the
    first with NRI 0.10."""
    found = _VERSION.match(nri_version)
    if found is not None:
        return (int(found[1]), int(found[2])) >= _KNOWS_POD_UPDATES
    found = _VERSION.match(version)
    is_new = found is not None and (int(found[1]), int(found[2])) >= _CONTAINERD_WITH_IT
    return runtime == "containerd" and is_new


def why_not(runtime: str, nri_version: str) -> str:
    """Return why a runtime cannot be told updates that it did not ask for (``UpdateContainers``);
    empty where it can.

    Before NRI 0.12.1 its library takes its own lock, then the runtime's, to carry out such an
    update, and the other way round to tell plugins of an event. An update that meets any event
    locks the runtime up for good: no pod starts or ends until somebody restarts it (containerd
    issue 13733). Nothing that a plugin sees tells when it is safe; answers to the runtime's own
    calls always are.
    """
    if takes_updates(nri_version):
        return ""
    version = nri_version or "of a version it does not tell"
    needs = ".".join(map(str, FIRST_SAFE))
    return (
        f"{runtime} has NRI {version}, and can lock up on updates that it did not ask for; "
        f"NRI {needs} does not"
    )


def takes_updates(nri_version: str) -> bool:
    """``nri_version``: of its NRI library, as the runtime tells it; those before 0.12 do not."""
    found = _VERSION.match(nri_version)
    if found is None:
        return False
    version = tuple(int(number) for number in found.groups()[:3])
    # With a suffix it comes before that version, by the rules of Go modules.
    return version > FIRST_SAFE or (version == FIRST_SAFE and not found[4])
