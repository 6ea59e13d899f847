"""Rules that the type of a single key cannot state."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from koordlet.config.schema import Application, Config
from koordlet.protocol.errors import Problem, join

# sun_path of sockaddr_un holds 108 bytes with the closing zero (unix(7)).
MAX_SOCKET_PATH_BYTES = 107


def problems(config: Config) -> Iterator[Problem]:
    """Every broken rule, by dotted key."""
    for key in config.paths.__struct_fields__:
        yield from _absolute(getattr(config.paths, key), f"paths.{key}")
    if config.tsdb.path:
        yield from _absolute(config.tsdb.path, "tsdb.path")
    yield from _socket(config.api.socket, "api.socket")
    yield from _socket(config.nri.socket, "nri.socket")
    yield from _socket(config.hook_server.socket, "hook-server.socket")
    yield from _absolute(config.hook_server.config_dir, "hook-server.config_dir")
    if config.sources.cri not in ("auto", "off"):
        yield from _socket(config.sources.cri, "sources.cri")
    if config.hook_server.enable and config.hook_server.socket == config.api.socket:
        yield Problem("hook-server.socket", "must not be that of the local API (api.socket)")
    yield from _absolute(config.hooks.gpu_env.hami_library, "hooks.gpu-env.hami_library")
    yield from _listen(config.metrics.listen, "metrics.listen")
    if config.tsdb.retention_s < config.tsdb.hot_window_s:
        yield Problem("tsdb.retention", "must not be shorter than tsdb.hot_window")
    if config.tsdb.coarse_resolution_s > config.tsdb.hot_window_s:
        yield Problem("tsdb.coarse_resolution", "must not be longer than tsdb.hot_window")
    taken: set[tuple[str, str]] = set()
    for index, application in enumerate(config.applications):
        path = join("applications", index)
        yield from _application(application, path)
        for key in ("name", "cgroup", "systemd_unit"):
            value = getattr(application, key)
            if value and (key, value) in taken:
                yield Problem(f"{path}.{key}", f"{value!r} is the {key} of another application")
            taken.add((key, value))


def _absolute(value: str, path: str) -> Iterator[Problem]:
    if not value.startswith("/"):
        yield Problem(path, f"must be an absolute path, is {value!r}")
    elif "\0" in value or ".." in value.split("/"):
        yield Problem(path, f"must not hold '..' or a zero byte, is {value!r}")


def _socket(value: str, path: str) -> Iterator[Problem]:
    yield from _absolute(value, path)
    if len(value.encode()) > MAX_SOCKET_PATH_BYTES:
        yield Problem(path, f"a socket path holds at most {MAX_SOCKET_PATH_BYTES} bytes")


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


def _application(application: Application, path: str) -> Iterator[Problem]:
    if not application.name:
        yield Problem(f"{path}.name", "must not be empty")
    if bool(application.cgroup) == bool(application.systemd_unit):
        yield Problem(path, "needs either cgroup or systemd_unit, not both and not none")
    if application.cgroup:
        parts = application.cgroup.split("/")
        if "" in parts or "." in parts or ".." in parts or "\0" in application.cgroup:
            yield Problem(
                f"{path}.cgroup",
                "must be relative to the cgroup root, without empty parts, '.' or '..',"
                f" is {application.cgroup!r}",
            )
    if application.systemd_unit and (
        "/" in application.systemd_unit
        or not application.systemd_unit.endswith((".service", ".scope", ".slice"))
    ):
        yield Problem(f"{path}.systemd_unit", "must name a .service, .scope or .slice unit")
    for kind in ("cpu_milli", "memory_bytes"):
        request = getattr(application, f"request_{kind}")
        limit = getattr(application, f"limit_{kind}")
        if request is not None and limit is not None and request > limit:
            yield Problem(f"{path}.{kind.split('_')[0]}_request", "is above the limit")
