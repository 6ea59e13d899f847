"""How the NRI connection is: the one source of `nri status`, `status`, `doctor` and the verdict."""

from __future__ import annotations

from koordlet.admin.model.doctor import CheckState, CheckView
from koordlet.admin.model.nri import NriView

NAME = "NRI"
LATE = (
    "containers get their values by reconciling, a moment after their start; variables, devices "
    "and mounts cannot be given to them"
)


def nri_check(view: NriView) -> CheckView:
    """Not ok while it should be connected and is not."""
    if not view.enabled:
        return _ok("switched off (key nri.enable)")
    if view.connected:
        return _ok(f"connected to {view.runtime} {view.version}".rstrip())
    if view.phase == "no-socket":
        why = f"not connected: nobody listens on {view.socket}"
        if not view.awaited:
            return _ok(f"{why}; there are no pods of kubelet here, so nobody has to")
        remedy = (
            "switch NRI on in the container runtime (docs/nri.md), or set nri.socket to where it "
            "listens; without NRI set nri.enable = false"
        )
    else:
        why = f"not connected ({view.phase}): {view.last_error or 'no answer yet'}"
        remedy = "see the log of the container runtime; it is tried again by itself"
    return CheckView(name=NAME, state=CheckState.LIMITED, why=why, cost=LATE, remedy=remedy)


def _ok(why: str) -> CheckView:
    return CheckView(name=NAME, state=CheckState.OK, why=why)
