"""What this machine makes of a configuration: what keeps the daemon from starting here, and what
would do nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from koordlet.config.part_tables import options_in
from koordlet.config.schema import Config
from koordlet.hooks import traffic
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.host import Host
from koordlet.kernel.parse import ParseError
from koordlet.kernel.proc.files import boot_id
from koordlet.kernel.topology import read_topology
from koordlet.protocol.cpuset import format_cpulist
from koordlet.protocol.errors import Problem, join
from koordlet.serving.unix_socket import SocketError, group_id


def problems(config: Config, host: Host) -> Iterator[Problem]:
    """What no daemon could start with here, by dotted key."""
    paths = config.paths
    try:
        detect(host, cgroup_root=paths.cgroup_root, proc_root=paths.proc_root)
    except FileNotFoundError as error:
        yield Problem("paths.cgroup_root", str(error))
    except (OSError, ParseError) as error:
        yield Problem("paths.proc_root", str(error))
    try:
        boot_id(host, paths.proc_root)
    except OSError as error:
        yield Problem("paths.proc_root", f"the boot id cannot be read: {error}")
    if config.api.group:
        try:
            group_id(config.api.group)
        except SocketError as error:
            yield Problem("api.group", str(error))
    for path, directory in _directories(config):
        if directory.startswith("/") and (why := _cannot_make(directory)):
            yield Problem(path, f"directory {directory} cannot be made or written: {why}")


def remarks(config: Config, host: Host) -> Iterator[Problem]:
    """What the daemon starts with, and what has no effect here."""
    try:
        online = read_topology(host, config.paths.sys_root).ids
    except (OSError, ParseError):
        return  # `koordlet status` shows it
    for key in ("reserved_cpus", "system_qos_cpus"):
        if missing := getattr(config.node, key) - online:
            yield Problem(
                f"node.{key}", f"CPUs {format_cpulist(missing)} are not online on this machine"
            )
    if config.node.kubelet_reserved_cpu_milli >= 1000 * len(online):
        text = f"as much as this machine has: {len(online)} CPUs"
        yield Problem("node.kubelet_reserved_cpu", text)
    devices = f"{config.paths.sys_root}/class/net"
    for index, device in enumerate(options_in(config.hooks, traffic.HOOK).devices):
        if isinstance(device, str) and not host.exists(f"{devices}/{device}"):
            path = join("hooks.network-qos.devices", index)
            yield Problem(path, f"this machine has no network device {device!r}")
    cri = config.sources.cri
    if cri not in ("auto", "off") and not host.exists(cri):
        yield Problem("sources.cri", f"no socket {cri} yet; pods have no labels without it")


def _directories(config: Config) -> Iterator[tuple[str, str]]:
    """Key -> a directory that the daemon makes and writes to."""
    yield "paths.state_dir", config.paths.state_dir
    yield "paths.run_dir", config.paths.run_dir
    if config.tsdb.path:
        yield "tsdb.path", config.tsdb.path
    yield "api.socket", os.path.dirname(config.api.socket)
    if config.metrics.listen.startswith("unix:"):
        yield "metrics.listen", os.path.dirname(config.metrics.listen.removeprefix("unix:"))
    if config.hook_server.enable:
        yield "hook-server.socket", os.path.dirname(config.hook_server.socket)
        yield "hook-server.config_dir", config.hook_server.config_dir


def _cannot_make(directory: str) -> str:
    """Found by trying, in the nearest directory that is there: file systems such as proc refuse
    what permissions allow. Empty: it can be written. The daemon runs as root; for anybody else
    only what is no directory counts."""
    there = directory
    try:
        while not os.path.lexists(there):
            there = os.path.dirname(there)
        if not stat.S_ISDIR(os.stat(there).st_mode):
            return f"{there} is not a directory"
        if os.geteuid() == 0:
            probe = os.path.join(there, f".koordlet-check-{os.getpid()}")
            os.mkdir(probe, 0o700)
            os.rmdir(probe)
    except (OSError, ValueError) as error:
        return f"{there}: {getattr(error, 'strerror', None) or error}"
    return ""
