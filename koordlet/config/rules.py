"""Rules that the type of a single key cannot state. Those of applications have a file of their
own."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator

import msgspec

from koordlet.collectors import COLLECTORS
from koordlet.config import plugins
from koordlet.config.part_tables import configured, options_in
from koordlet.config.schema import Config
from koordlet.decision.options import absolute
from koordlet.protocol import keys
from koordlet.protocol.decode import nearest
from koordlet.protocol.errors import NOTHING, AnnotationError, Problem, Refused, join
from koordlet.protocol.quantity import NANO, Quantity
from koordlet.protocol.resources import CPU
from koordlet.serving.unix_socket import API_DIR, HOOKS_DIR, MAX_PATH_BYTES, longest_path

_NODE_ANNOTATIONS = {
    key.name: key for key in keys.KEYS.values() if key.kind is keys.Kind.NODE_ANNOTATION
}


def problems(config: Config, refused: Refused = NOTHING) -> Iterator[Problem]:
    """Every broken rule, by dotted key. ``refused``: keys that hold their default because what
    the file says could not be read."""
    for key in config.paths.__struct_fields__:
        yield from absolute(getattr(config.paths, key), f"paths.{key}")
    if config.tsdb.path:
        yield from absolute(config.tsdb.path, "tsdb.path")
    yield from absolute(config.hook_server.config_dir, "hook-server.config_dir")
    if config.sources.kubepods_root:
        yield from cgroup_path(config.sources.kubepods_root, "sources.kubepods_root")
    yield from _cluster(config)
    yield from _sockets(config, refused)
    yield from _listen(config.metrics.listen, "metrics.listen")
    if "tsdb.hot_window" not in refused:
        if "tsdb.retention" not in refused and config.tsdb.retention_s < config.tsdb.hot_window_s:
            yield Problem("tsdb.retention", "must not be shorter than tsdb.hot_window")
        if (
            "tsdb.coarse_resolution" not in refused
            and config.tsdb.coarse_resolution_s > config.tsdb.hot_window_s
        ):
            yield Problem("tsdb.coarse_resolution", "must not be longer than tsdb.hot_window")
    if not config.nri.plugin_name:
        yield Problem("nri.plugin_name", "must not be empty")
    for name, text in config.node.annotations.items():
        yield from _annotation(name, text)
    for name, amount in config.node.allocatable.items():
        yield from _offered(name, amount)
    yield from plugins.load(config.plugins).faults
    for table, part in configured(config):
        for each in part.problems():
            yield msgspec.structs.replace(each, path=f"{table}.{each.path}")


def _cluster(config: Config) -> Iterator[Problem]:
    cluster = config.cluster
    if cluster.api not in ("off", "in-cluster"):
        yield from absolute(cluster.api, "cluster.api")
    if cluster.kubelet_ca != "auto":
        yield from absolute(cluster.kubelet_ca, "cluster.kubelet_ca")
    yield from absolute(cluster.kubelet_dir, "cluster.kubelet_dir")
    if cluster.pod_resources != "off":
        yield from absolute(cluster.pod_resources, "cluster.pod_resources")
    if cluster.pods == "kubelet" and not cluster.kubelet:
        yield Problem("cluster.kubelet", 'must be true where cluster.pods is "kubelet"')


def remarks(config: Config) -> Iterator[Problem]:
    """What is accepted and probably not meant, by dotted key."""
    yield from plugins.load(config.plugins).missing
    for name in config.node.annotations:
        if name not in _NODE_ANNOTATIONS and _is_of_koordinator(name):
            yield Problem(
                join("node.annotations", name),
                "koordlet does not read this annotation",
                nearest(name, _NODE_ANNOTATIONS),
            )
    tick_s = config.daemon.tick_seconds
    for name, usual in COLLECTORS.items():
        interval_s = options_in(config.collectors, usual).interval_seconds
        if interval_s < tick_s and interval_s != usual.options.interval_seconds:
            yield Problem(
                f"collectors.{name}.interval_seconds",
                f"is {interval_s:g}, but nothing is measured between two ticks of {tick_s:g} s "
                "(daemon.tick_seconds)",
            )
    if config.prediction.enable and config.prediction.training_interval_s < tick_s:
        yield Problem(
            "prediction.training_interval",
            f"is {config.prediction.training_interval_s:g} s, but a model has one sample a tick at "
            f"most, each {tick_s:g} s (daemon.tick_seconds)",
        )


def _is_of_koordinator(name: str) -> bool:
    """Whether the protocol could give the key a meaning; others are somebody else's."""
    domain = name.partition("/")[0]
    return domain == "koordinator.sh" or domain.endswith(".koordinator.sh")


def _annotation(name: str, text: str) -> Iterator[Problem]:
    """By the protocol's own parser, as it is read later."""
    key = _NODE_ANNOTATIONS.get(name)
    try:
        if key is not None:
            key.read({name: text})
    except AnnotationError as error:
        for each in error.problems:
            message = f"{each.path}: {each.message}" if each.path else each.message
            yield Problem(join("node.annotations", name), message, each.nearest)


def _offered(name: str, amount: Quantity) -> Iterator[Problem]:
    path = join("node.allocatable", name)
    if amount.nano < 0:
        yield Problem(path, f"{amount} is negative")
    elif name != CPU and amount.nano % NANO:
        yield Problem(
            path, f"{amount} is not a whole number; suffix m is a thousandth (M and Mi are not)"
        )


def _sockets(config: Config, refused: Refused) -> Iterator[Problem]:
    """Each at a place of its own, with a path that the kernel can hold."""
    yield from _socket(config.nri.socket, "nri.socket")
    if config.sources.cri not in ("auto", "off"):
        yield from _socket(config.sources.cri, "sources.cri")
    served = {
        "api.socket": config.api.socket,
        "hook-server.socket": config.hook_server.socket if config.hook_server.enable else "",
        "metrics.listen": config.metrics.listen.removeprefix("unix:"),
    }
    yield from _socket(config.api.socket, "api.socket", API_DIR)
    yield from _socket(config.hook_server.socket, "hook-server.socket", HOOKS_DIR)
    names = {"api.socket": "the local API", "hook-server.socket": "the hook server"}
    taken: dict[str, str] = {}
    for path, value in served.items():
        if not value or path in refused:
            continue
        place = os.path.normpath(value)
        if place in taken:
            yield Problem(path, f"must not be that of {names[taken[place]]} ({taken[place]})")
        taken.setdefault(place, path)


def _socket(value: str, path: str, private: str = "") -> Iterator[Problem]:
    """``private``: of a socket that is served, the directory beside it for what is behind it."""
    yield from absolute(value, path)
    longest = longest_path(value, private) if private else value
    if len(longest.encode(errors="surrogateescape")) > MAX_PATH_BYTES:
        beside = f" ({longest} is beside it)" if longest != value else ""
        yield Problem(path, f"a socket path holds at most {MAX_PATH_BYTES} bytes{beside}")


def _listen(value: str, path: str) -> Iterator[Problem]:
    if value == "off":
        return
    if value.startswith("unix:"):
        yield from _socket(value.removeprefix("unix:"), path)
        return
    host, colon, port = value.removeprefix("remote:").rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port[:6]) > 65535:
        yield Problem(path, f'must be "IP:PORT", "unix:/path" or "off", is {value!r}')
        return
    bare = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        yield Problem(path, f"{host!r} is not an IP address; names are not looked up")
        return
    if not address.is_loopback and not value.startswith("remote:"):
        yield Problem(
            path,
            f"other machines can reach {bare}, and the page has no authentication; write "
            f'"127.0.0.1:{port}", or "remote:{value}" if that is meant',
        )


def cgroup_path(value: str, path: str) -> Iterator[Problem]:
    parts = value.split("/")
    if "" in parts or "." in parts or ".." in parts or "\0" in value:
        yield Problem(
            path,
            f"must be relative to the cgroup root, without empty parts, '.' or '..', is {value!r}",
        )
