"""Whether a DAMON thread watches the machine (Linux ``Documentation/admin-guide/mm/damon/
usage.rst``). Only looked at: all kdamonds share one state, and stopping or changing one that
somebody else has started would break what that is for."""

from __future__ import annotations

from koordlet.kernel.host import Host


def running(host: Host, sys_root: str = "/sys") -> tuple[str, ...]:
    """Directories of the kdamonds that are on; empty where the kernel has none."""
    base = f"{sys_root}/kernel/mm/damon/admin/kdamonds"
    try:
        names = host.subdirs(base)
        return tuple(
            f"{base}/{name}" for name in names if host.read(f"{base}/{name}/state").strip() == b"on"
        )
    except OSError:
        return ()
