"""Whether a DAMON thread watches the machine (Linux ``Documentation/admin-guide/mm/damon/
usage.rst``). Only looked at: all kdamonds share one state, and stopping or changing one that
somebody else has started would break what that is for."""

from __future__ import annotations

import errno

from koordlet.kernel.host import Host

_MODULES = ("damon_reclaim", "damon_lru_sort", "damon_stat")
"""Of the kernel, each with a kdamond of its own that is in no directory of the admin interface."""


def running(host: Host, sys_root: str = "/sys") -> tuple[str, ...]:
    """What says that a kdamond is on; empty where none is, or the kernel has none. One whose state
    cannot be read counts as on."""
    base = f"{sys_root}/kernel/mm/damon/admin/kdamonds"
    files = {f"{sys_root}/module/{name}/parameters/enabled": b"Y" for name in _MODULES}
    found = []
    try:
        files |= {f"{base}/{name}/state": b"on" for name in host.subdirs(base)}
    except FileNotFoundError:
        pass
    except OSError as error:
        found.append(f"{base} cannot be read ({_name(error)})")
    for path, on in sorted(files.items()):
        try:
            if host.read(path).strip() == on:
                found.append(f"{path} is {on.decode()}")
        except FileNotFoundError:
            continue
        except OSError as error:
            found.append(f"{path} cannot be read ({_name(error)})")
    return tuple(found)


def _name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error.errno))
