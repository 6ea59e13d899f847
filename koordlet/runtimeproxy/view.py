"""The state of the proxy for people and scripts: stable keys, and the metrics page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import msgspec

from koordlet.runtimeproxy.stats import BUCKETS_S, Stats

_PREFIX = "koord_runtimeproxy_"


class MethodView(msgspec.Struct, frozen=True):
    """``p50_s``, ``p99_s``: added to a request; upper bounds of the histogram's buckets."""

    method: str
    calls: int
    intercepted: int
    changed: int
    failures: int
    hook_failures: int
    refused: int
    added_p50_s: float | None
    added_p99_s: float | None
    added_mean_s: float | None


class ServerView(msgspec.Struct, frozen=True):
    """A hook server that some file names. ``error``: why it is left alone now."""

    socket: str
    closed: bool
    retry_in_s: float
    error: str


class FileView(msgspec.Struct, frozen=True):
    name: str
    socket: str
    failure_policy: str
    hooks: tuple[str, ...]
    error: str


class ProxyView(msgspec.Struct, frozen=True):
    """``turned_away``: connections that came when there were too many, all of them busy."""

    version: str
    pid: int
    uptime_s: float
    endpoint: str
    backend: str
    backend_error: str
    clients: int
    broken_connections: int
    pods: int
    containers: int
    config_dir: str
    config_error: str
    files: tuple[FileView, ...]
    servers: tuple[ServerView, ...]
    methods: tuple[MethodView, ...]
    turned_away: int = 0


def methods(stats: Stats) -> tuple[MethodView, ...]:
    found = []
    for path, each in sorted(stats.methods.items()):
        timed = sum(each.added)
        hooks = each.hooks
        found.append(
            MethodView(
                method=path,
                calls=each.calls,
                intercepted=each.held,
                changed=hooks.get("changed", 0),
                failures=each.failures,
                hook_failures=hooks.get("failed", 0),
                refused=hooks.get("refused", 0),
                added_p50_s=each.quantile(0.5),
                added_p99_s=each.quantile(0.99),
                added_mean_s=each.added_sum_s / timed if timed else None,
            )
        )
    return tuple(found)


def page(view: ProxyView, stats: Stats) -> bytes:
    """The Prometheus text format, version 0.0.4."""
    return "\n".join([*_lines(view, stats), ""]).encode()


def _lines(view: ProxyView, stats: Stats) -> Iterator[str]:
    yield from _family(
        "backend_up", "gauge", "Whether the container runtime answers.",
        [({}, float(not view.backend_error))],
    )  # fmt: skip
    yield from _family("clients", "gauge", "Connections of clients.", [({}, float(view.clients))])
    yield from _family(
        "broken_connections_total", "counter", "Connections ended because a peer broke HTTP/2.",
        [({}, float(view.broken_connections))],
    )  # fmt: skip
    yield from _family(
        "turned_away_connections_total", "counter", "Connections refused, for there were too many.",
        [({}, float(view.turned_away))],
    )  # fmt: skip
    yield from _family(
        "hook_server_closed", "gauge", "Whether a hook server is asked; 0 after it failed.",
        [({"socket": each.socket}, float(each.closed)) for each in view.servers],
    )  # fmt: skip
    yield from _family(
        "config_file_refused", "gauge", "Whether a file of the config directory is not in force.",
        [({"file": each.name}, float(bool(each.error))) for each in view.files],
    )  # fmt: skip
    for name, help_, value in (
        ("calls_total", "Calls, by method.", "calls"),
        ("intercepted_total", "Calls whose request stopped for the hooks.", "intercepted"),
        ("changed_total", "Calls whose request a hook changed.", "changed"),
        ("failures_total", "Calls that did not end with OK.", "failures"),
        ("hook_failures_total", "Calls that passed unchanged, for a hook failed.", "hook_failures"),
        ("refused_total", "Calls refused, for a hook failed under policy Fail.", "refused"),
    ):
        rows = [({"method": each.method}, float(getattr(each, value))) for each in view.methods]
        yield from _family(name, "counter", help_, rows)
    yield from _histograms(stats)


def _family(
    name: str, kind: str, help_: str, rows: list[tuple[dict[str, str], float]]
) -> Iterator[str]:
    if rows:
        yield f"# HELP {_PREFIX}{name} {help_}"
        yield f"# TYPE {_PREFIX}{name} {kind}"
        for labels, value in rows:
            yield f"{_PREFIX}{name}{_labels(labels)} {_number(value)}"


def _histograms(stats: Stats) -> Iterator[str]:
    name = f"{_PREFIX}added_seconds"
    if stats.methods:
        yield f"# HELP {name} Time a request spent in the proxy, hooks included."
        yield f"# TYPE {name} histogram"
    for path, each in sorted(stats.methods.items()):
        below = 0
        for bound, count in zip((*BUCKETS_S, math.inf), each.added, strict=True):
            below += count
            yield f"{name}_bucket{_labels({'method': path, 'le': _number(bound)})} {below}"
        yield f"{name}_sum{_labels({'method': path})} {_number(each.added_sum_s)}"
        yield f"{name}_count{_labels({'method': path})} {below}"


def _labels(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf"
    return f"{value:.0f}" if value == int(value) else repr(value)
