"""Taking memory back from a cgroup on demand (``memory.reclaim``, Linux 5.19,
``Documentation/admin-guide/cgroup-v2.rst``). cgroup v1 has nothing like it."""

from __future__ import annotations

import errno

from koordlet.kernel.cgroup.cgroups import check_path
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host

FILE = "memory.reclaim"
NEEDS_V2 = f"{FILE} is a file of cgroup v2, and the memory controller is not there"


def reclaim(host: Host, layout: Layout, cgroup: str, size_bytes: int) -> bool:
    """Whether the kernel found that much; less is no error. May block for as long as that takes.

    Raises ValueError for a path that leaves the root, FileNotFoundError where the cgroup or the
    file is gone, any other OSError as the kernel gave it.
    """
    check_path(cgroup)
    if layout.v2 is None or "memory" not in layout.v2_controllers:
        raise FileNotFoundError(errno.ENOENT, NEEDS_V2, cgroup)
    try:
        host.write(f"{layout.v2}/{cgroup}/{FILE}", b"%d" % size_bytes)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            return False
        raise
    return True
