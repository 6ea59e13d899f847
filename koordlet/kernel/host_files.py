"""Files that concern the whole machine: knobs below /proc/sys and /sys/kernel, and what terway-qos
reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from koordlet.decision.resource import ABSENT, Resource, Value
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.cgroup.forms import INT64_MAX, Form, Number, OwnPart
from koordlet.kernel.host import Host, read_lines, temporary
from koordlet.kernel.parse import ParseError

TERWAY_DIR = "/var/lib/terway/qos"

PERSISTENT = frozenset({Resource.TERWAY_GLOBAL, Resource.TERWAY_PODS})
"""Files on a disk: a reboot does not take what was written to them with it."""


class _WholeFile(Form):
    """An ordinary file, replaced as a whole."""

    def parse(self, data: bytes) -> str:
        return data.decode()

    def format(self, value: Value) -> bytes:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not the text of a file")
        return value.encode()


class _Features(OwnPart):
    """Words, each a switch that is on, or off with ``NO_`` before it. A value may name some of
    them; the kernel takes one per write."""

    def parse(self, data: bytes) -> str:
        return " ".join(data.decode(errors="replace").split())

    def format(self, value: Value) -> bytes:
        return " ".join(self._words(value)).encode()

    def equal(self, wanted: Value, found: Value) -> bool:
        return set(self._words(wanted)) <= set(self._words(found))

    def writes(self, value: Value, current: Callable[[], bytes]) -> list[bytes]:
        present = set(self.parse(current()).split())
        unknown = self.unknown(value, " ".join(present))
        return [
            f"{word}\n".encode()
            for word in self._words(value)
            if word not in present and word.removeprefix("NO_") not in unknown
        ]

    def unknown(self, value: Value, found: Value) -> list[str]:
        """The features of ``value`` that the kernel does not list."""
        listed = {word.removeprefix("NO_") for word in self._words(found)}
        names = (word.removeprefix("NO_") for word in self._words(value))
        return [name for name in names if name not in listed]

    @staticmethod
    def _words(value: Value) -> list[str]:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not a list of scheduler features")
        words = value.split()
        names = [word.removeprefix("NO_") for word in words]
        if not all(name.replace("_", "").isalnum() and name.isascii() for name in names):
            raise ValueError(f"{value!r}: a scheduler feature is letters, digits and _")
        if len(set(names)) < len(names):
            raise ValueError(f"{value!r} names a feature twice")
        return words


def require_features(host: Host, path: str, wanted: Value) -> None:
    """Raises Unsupported where the scheduler lacks one of them."""
    features = _Features()
    if unknown := features.unknown(wanted, features.parse(host.read(path))):
        raise Unsupported(
            Resource.SCHED_FEATURES,
            f"this kernel's scheduler has no {', '.join(unknown)} ({path} lists what it has)",
            "use a kernel that has it, or do without",
        )


@dataclass(frozen=True)
class _Row:
    """``paths``: the first that exists counts. ``lacking``: what it means that none does, or that
    the directory of an ordinary file is missing. ``ordinary``: a file that may be absent."""

    paths: tuple[str, ...]
    form: Form
    lacking: str
    ordinary: bool = False


_VENDOR = "Anolis and Alibaba Cloud kernels have it"
_ALL = "every Linux kernel has it"
_TERWAY = "terway makes it where its QoS is on"
_DEBUGFS = "debugfs is not mounted, or the kernel was built without CONFIG_SCHED_DEBUG"


def _rows(proc_root: str, sys_root: str, terway_dir: str) -> Mapping[Resource, _Row]:
    kernel, vm, mm = f"{proc_root}/sys/kernel", f"{proc_root}/sys/vm", f"{sys_root}/kernel/mm"
    debug = f"{sys_root}/kernel/debug"
    switch, text = Number(0, 1), _WholeFile()
    r = Resource
    return {
        r.SYSCTL_GROUP_IDENTITY: _Row((f"{kernel}/sched_group_identity_enabled",), switch, _VENDOR),
        r.SYSCTL_SCHED_CORE: _Row((f"{kernel}/sched_core",), switch, _VENDOR),
        r.SYSCTL_SCHED_IDLE_SAVER_WMARK: _Row(
            (f"{kernel}/sched_idle_saver_wmark",), Number(-INT64_MAX), _VENDOR
        ),
        r.SYSCTL_MIN_FREE_KBYTES: _Row((f"{vm}/min_free_kbytes",), Number(0), _ALL),
        r.SYSCTL_WATERMARK_SCALE_FACTOR: _Row(
            (f"{vm}/watermark_scale_factor",), Number(1, 3000), _ALL
        ),
        r.MEMCG_REAP_BACKGROUND: _Row((f"{mm}/memcg_reaper/reap_background",), switch, _VENDOR),
        r.PAGECACHE_LIMIT_ENABLED: _Row((f"{mm}/pagecache_limit/enabled",), switch, _VENDOR),
        r.KIDLED_SCAN_PERIOD: _Row(
            (f"{mm}/kidled/scan_period_in_seconds",), Number(0, 65535), _VENDOR
        ),
        r.KIDLED_USE_HIERARCHY: _Row((f"{mm}/kidled/use_hierarchy",), switch, _VENDOR),
        # The file has moved in Linux 5.13.
        r.SCHED_FEATURES: _Row(
            (f"{debug}/sched/features", f"{debug}/sched_features"), _Features(), _DEBUGFS
        ),
        r.TERWAY_GLOBAL: _Row((f"{terway_dir}/global_bps_config",), text, _TERWAY, True),
        r.TERWAY_PODS: _Row((f"{terway_dir}/pod.json",), text, _TERWAY, True),
    }


class HostFiles:
    """Raises as ``Cgroups`` does; the cgroup is always ``""``."""

    def __init__(
        self, host: Host, *, proc_root: str, terway_dir: str, sys_root: str = "/sys"
    ) -> None:
        self._host = host
        self._rows = _rows(proc_root, sys_root, terway_dir)

    @property
    def resources(self) -> frozenset[Resource]:
        return frozenset(self._rows)

    def path(self, cgroup: str, resource: Resource) -> str:
        if cgroup:
            raise ValueError(f"{resource} is of the whole machine, not of cgroup {cgroup}")
        row = self._rows[resource]
        for path in row.paths:
            needed = path.rpartition("/")[0] if row.ordinary else path
            if self._host.exists(needed):
                return path
        raise Unsupported(resource, f"{needed} does not exist ({row.lacking})")

    def id(self, cgroup: str, resource: Resource) -> int:
        """Always 0: such a file stays the same one, whoever replaces it."""
        return 0

    def encode(self, resource: Resource, value: Value) -> bytes:
        try:
            return self._rows[resource].form.format(value)
        except ValueError as error:
            raise ValueError(f"{resource}: {error}") from error

    def equal(self, resource: Resource, wanted: Value, found: Value) -> bool:
        return self._rows[resource].form.equal(wanted, found)

    def read(self, cgroup: str, resource: Resource) -> Value:
        data = self.read_raw(cgroup, resource)
        try:
            return self._rows[resource].form.parse(data)
        except ValueError as error:
            raise ParseError(self.path(cgroup, resource), 0, str(error)) from error

    def read_raw(self, cgroup: str, resource: Resource) -> bytes:
        path = self.path(cgroup, resource)
        if not self._rows[resource].ordinary:
            return read_lines(self._host, path)
        try:
            return self._host.read(path)
        except FileNotFoundError:
            return ABSENT.encode()

    def write(self, cgroup: str, resource: Resource, value: Value) -> None:
        if self._rows[resource].ordinary:
            self.write_raw(cgroup, resource, self.encode(resource, value))
            return
        path, form = self.path(cgroup, resource), self._rows[resource].form
        self.encode(resource, value)
        for data in form.writes(value, lambda: read_lines(self._host, path)):
            self._host.write(path, data)
        # All that can be had is set before that is told.
        if isinstance(form, _Features):
            require_features(self._host, path, value)

    def write_raw(self, cgroup: str, resource: Resource, data: bytes) -> None:
        path = self.path(cgroup, resource)
        row = self._rows[resource]
        if not row.ordinary:
            for part in row.form.raw_writes(data, lambda: read_lines(self._host, path)):
                self._host.write(path, part)
            return
        if data != ABSENT.encode():
            self._host.replace(path, data)
            return
        for each in (path, temporary(path)):
            if self._host.exists(each):
                self._host.unlink(each)

    def has_lost(self, resource: Resource) -> bool:
        """Whether what the file held is gone for good: that of a directory that was removed. Files
        of the kernel come back with what they held, as those of debugfs when it is mounted."""
        return self._rows[resource].ordinary

    def holds(self, cgroup: str, resource: Resource, data: bytes) -> bool:
        path = self.path(cgroup, resource)
        left = self._rows[resource].ordinary and self._host.exists(temporary(path))
        return not left and self.read_raw(cgroup, resource) == data
