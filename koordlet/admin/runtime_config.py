"""How this machine's container runtimes and kubelet are set up: NRI's switches, kubelet's endpoint.

Read from their files and command lines. Only what root runs is believed: anybody can name a
process ``containerd``.
"""

from __future__ import annotations

import fnmatch
import os
import posixpath
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from koordlet.kernel.host import Host

NRI_SOCKET = "/var/run/nri/nri.sock"
CONTAINERD_CONFIG = "/etc/containerd/config.toml"
CRIO_CONFIG = "/etc/crio/crio.conf"
KUBELET_CONFIG = "/var/lib/kubelet/config.yaml"
KUBEADM_FLAGS = "/var/lib/kubelet/kubeadm-flags.env"
KUBELET_DEFAULT_ENDPOINT = "unix:///run/containerd/containerd.sock"
_NRI_PLUGIN = "io.containerd.nri.v1.nri"
_CRI_PLUGINS = {"cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"}
_MAX_IMPORTS = 64

Dump = Callable[[str], str | None]
"""``containerd config dump`` of the configuration file named; None where it cannot be had."""


class UnreadableError(Exception):
    """A configuration that cannot be read; the text names the file and says why."""


@dataclass(frozen=True)
class Process:
    pid: int
    arguments: tuple[str, ...]

    def option(self, *names: str) -> str:
        """Value of the last ``--name VALUE`` or ``--name=VALUE``; empty when there is none."""
        found = ""
        for argument, following in zip(self.arguments, (*self.arguments[1:], ""), strict=True):
            name, equals, value = argument.partition("=")
            if name in names:
                found = value if equals else following
        return found


@dataclass(frozen=True)
class NriSwitches:
    """``disabled``, ``connections_disabled``: None where the files do not say, and the version of
    the runtime decides. ``serves_pods``: its CRI service is on."""

    file: str
    disabled: bool | None = None
    connections_disabled: bool | None = None
    socket: str = NRI_SOCKET
    serves_pods: bool = True


@dataclass(frozen=True)
class Endpoint:
    """``origin``: where kubelet has it from."""

    address: str
    origin: str

    @property
    def path(self) -> str:
        return plain_path(self.address)


def plain_path(address: str) -> str:
    """``unix:///var/run/x`` and ``/run/x`` are one place."""
    path = address.removeprefix("unix://")
    return path.removeprefix("/var") if path.startswith("/var/run/") else path


def processes(host: Host, comm: str, proc_root: str = "/proc") -> tuple[Process, ...]:
    """Those of root with this name, by pid."""
    found = []
    for entry in host.subdirs(proc_root):
        directory = f"{proc_root}/{entry}"
        if not entry.isdigit():
            continue
        try:
            if host.read(f"{directory}/comm").decode(errors="replace").strip() != comm:
                continue
            if b"\nUid:\t0\t0\t" not in host.read(f"{directory}/status"):
                continue
            command = host.read(f"{directory}/cmdline").decode(errors="replace")
        except OSError:
            continue  # the process has ended meanwhile
        found.append(Process(int(entry), tuple(command.removesuffix("\0").split("\0"))))
    return tuple(sorted(found, key=lambda process: process.pid))


def containerd_nri(host: Host, file: str, dump: Dump) -> NriSwitches:
    """What is in force, as far as files tell: by containerd itself, else ``file`` with its
    imports. Raises UnreadableError."""
    text = dump(file)
    tree = _toml(file, text) if text is not None else _merged(host, file)
    own = _table(tree, "plugins", _NRI_PLUGIN)
    off = set(_strings(tree.get("disabled_plugins")))
    # A configuration of version 3 is one of containerd 2, where NRI is on by default.
    default = None if text is not None or tree.get("version") != 3 else False
    return NriSwitches(
        file=file,
        disabled=True if off & {"nri", _NRI_PLUGIN} else own.get("disable", default),
        connections_disabled=own.get("disable_connections", default),
        socket=_string(own.get("socket_path")) or NRI_SOCKET,
        serves_pods=not off & _CRI_PLUGINS,
    )


def crio_nri(host: Host, file: str = CRIO_CONFIG) -> NriSwitches:
    """``file``, then those in the directory beside it, in the order of their names. Raises
    UnreadableError."""
    own: dict[str, Any] = {}
    files = [file, *_listed(host, f"{file}.d", "*")]
    for each in files:
        if host.exists(each):
            own |= _table(_toml(each, _text(host, each)), "crio", "nri")
    enabled = own.get("enable_nri")
    return NriSwitches(
        file=file,
        disabled=None if enabled is None else not enabled,
        connections_disabled=own.get("nri_disable_connections", False),
        socket=_string(own.get("nri_listen")) or NRI_SOCKET,
    )


def kubelet_endpoint(host: Host, process: Process | None) -> Endpoint | None:
    """A flag goes before the configuration file (and its drop-ins). None: there is no kubelet.
    ``process`` None: it does not run, and its files tell. Raises UnreadableError."""
    flags, origin = process, f"command line of kubelet, pid {process.pid}" if process else ""
    if flags is None:
        if host.exists(KUBEADM_FLAGS):
            flags, origin = _kubeadm(host), KUBEADM_FLAGS
        elif not host.exists(KUBELET_CONFIG):
            return None
    if flags is not None and (address := flags.option("--container-runtime-endpoint")):
        return Endpoint(address, origin)
    file = (flags.option("--config") if flags is not None else "") or KUBELET_CONFIG
    drop_ins = flags.option("--config-dir") if flags is not None else ""
    found = Endpoint(KUBELET_DEFAULT_ENDPOINT, "kubelet's default")
    for each in (file, *(_listed(host, drop_ins, "*.conf") if drop_ins else ())):
        if host.exists(each) and (address := _kubelet_key(host, each)):
            found = Endpoint(address, each)
    return found


def _kubeadm(host: Host) -> Process:
    words: list[str] = []
    for line in _text(host, KUBEADM_FLAGS).splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "KUBELET_KUBEADM_ARGS":
            try:
                words = shlex.split(" ".join(shlex.split(value)))
            except ValueError as error:
                raise UnreadableError(f"{KUBEADM_FLAGS}: {error}") from error
    return Process(0, tuple(words))


def _kubelet_key(host: Host, file: str) -> str:
    import yaml

    try:
        tree = yaml.safe_load(_text(host, file))
    except yaml.YAMLError as error:
        raise UnreadableError(f"{file}: {' '.join(str(error).split())}") from error
    return _string(tree.get("containerRuntimeEndpoint")) if isinstance(tree, dict) else ""


def _merged(host: Host, file: str) -> dict[str, Any]:
    """The keys this module looks at, of ``file`` and what it imports; the later counts."""
    found: dict[str, Any] = {}
    nri: dict[str, Any] = {}
    for each in _with_imports(host, file):
        tree = _toml(each, _text(host, each))
        nri |= _table(tree, "plugins", _NRI_PLUGIN)
        found |= {k: tree[k] for k in ("version", "disabled_plugins") if k in tree}
    return found | {"plugins": {_NRI_PLUGIN: nri}}


def _with_imports(host: Host, file: str) -> Iterator[str]:
    """``imports`` are paths or patterns, relative to the file that has them."""
    pending, seen = [file], set[str]()
    while pending:
        each = pending.pop(0)
        if each in seen or len(seen) >= _MAX_IMPORTS or not host.exists(each):
            continue
        seen.add(each)
        yield each
        for pattern in _strings(_toml(each, _text(host, each)).get("imports")):
            path = posixpath.join(posixpath.dirname(each), pattern)
            pending += _listed(host, posixpath.dirname(path), posixpath.basename(path))


def _listed(host: Host, directory: str, pattern: str) -> Sequence[str]:
    try:
        names = host.listdir(directory)
    except OSError:
        return ()
    return [f"{directory}/{name}" for name in sorted(fnmatch.filter(names, pattern))]


def _toml(file: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UnreadableError(f"{file}: {error}") from error


def _text(host: Host, file: str) -> str:
    try:
        return host.read(file).decode()
    except OSError as error:
        raise UnreadableError(f"{file}: {os.strerror(error.errno or 0)}") from error
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{file}: byte {error.start} is not UTF-8") from error


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _strings(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _table(tree: Mapping[str, Any], *path: str) -> dict[str, Any]:
    found: Any = tree
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}
