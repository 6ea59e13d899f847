"""``/proc/PID/oom_score_adj`` of the processes of a cgroup (``proc(5)``)."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

from koordlet.decision.resource import Resource, Value
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.host import Host, read_lines
from koordlet.kernel.proc.members import vanished

LOWEST, HIGHEST = -1000, 1000

MAY_LOWER = (
    "give koordlet CAP_SYS_RESOURCE (CapabilityBoundingSet= of its unit), on a machine that has it"
)


class OomScoreAdj:
    resource = Resource.OOM_SCORE_ADJ
    listed_in = Resource.PROCS

    def __init__(self, host: Host, proc_root: str) -> None:
        self._host = host
        self._proc_root = proc_root

    def require(self) -> None:
        """Every kernel has it."""

    def check(self, value: Value) -> str:
        if not isinstance(value, int) or not LOWEST <= value <= HIGHEST:
            raise ValueError(f"{value!r} is not a number in {LOWEST}..{HIGHEST}")
        return str(value)

    def back(self, text: str) -> str:
        return text

    def value(self, text: str) -> Value:
        return int(text)

    def held(self, cgroup: str, ids: Sequence[int]) -> Mapping[int, str]:
        found = {}
        for pid in ids:
            try:
                found[pid] = read_lines(self._host, self._file(pid)).decode().strip()
            except OSError as error:
                if not vanished(error):
                    raise
        return found

    def give(self, cgroup: str, ids: Sequence[int], text: str) -> None:
        """All that may be changed are; then raises Unsupported for the first that may not."""
        refused = ""
        for pid in ids:
            try:
                self._host.write(self._file(pid), text.encode())
            except OSError as error:
                if error.errno == errno.EACCES:
                    refused = refused or self._file(pid)
                elif not vanished(error):
                    raise
        if refused:
            why = f"{refused} cannot be lowered to {text} (EACCES)"
            raise Unsupported(self.resource, why, MAY_LOWER)

    def _file(self, pid: int) -> str:
        return f"{self._proc_root}/{pid}/oom_score_adj"
