"""``koordlet runtime-proxy`` and ``koordlet proxy status``."""

from __future__ import annotations

import argparse
import asyncio
import socket
from collections.abc import Iterable

import msgspec

from koordlet.cli import output
from koordlet.cli.main import Exit, complain
from koordlet.cli.process.lean import UNUSED, reuse_buffers, unavailable
from koordlet.runtimeproxy.view import ProxyView

_STATUS_TIMEOUT_S = 5.0

Row = tuple[str, ...]


def run(args: argparse.Namespace) -> int:
    """The proxy in the foreground."""
    if args.backend_runtime_mode != "Containerd":
        mode = args.backend_runtime_mode
        return complain(
            f"--backend-runtime-mode {mode}: only Containerd is served; Docker mode is out of "
            "scope (docs/compatibility.md)",
            Exit.USAGE,
        )
    reuse_buffers()
    with unavailable(*UNUSED):
        from koordlet.cli.process import logs
        from koordlet.runtimeproxy import listen, process
        from koordlet.runtimeproxy.intercept import SkipLabel

        logs.configure()
        options = process.Options(
            endpoint=_path(args.koord_runtimeproxy_endpoint),
            backend=_path(args.remote_runtime_service_endpoint),
            skip=SkipLabel(args.runtime_hook_server_key, args.runtime_hook_server_val),
            hook_config_dir=args.hook_config_dir,
            hook_budget_s=args.hook_timeout,
            status_socket=args.status_socket,
        )
        try:
            asyncio.run(process.run(options))
        except listen.ListenError as error:
            return complain(error, Exit.BAD)
    return Exit.OK


def status(args: argparse.Namespace) -> int:
    try:
        found = ask(args.status_socket)
    except OSError as error:
        return complain(
            f"{args.status_socket}: {error.strerror or error}; is `koordlet runtime-proxy` "
            "running, and are you root?",
            Exit.NOT_REACHABLE,
        )
    except ValueError as error:
        return complain(f"{args.status_socket}: {error}", Exit.BAD)
    output.emit(found, args.output, lambda: lines(found))
    return Exit.OK


def ask(path: str) -> ProxyView:
    """Raises OSError, and ValueError when something else than a proxy answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_STATUS_TIMEOUT_S)
        connection.connect(path)
        connection.sendall(b"GET /status HTTP/1.1\r\nHost: proxy\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.partition(b"\r\n")[0]:
        raise ValueError("the answer is no status of a proxy")
    return msgspec.json.decode(body, type=ProxyView)


def lines(view: ProxyView) -> list[str]:
    facts = [
        ("proxy", f"{view.version}, pid {view.pid}, up {output.span(view.uptime_s)}"),
        ("endpoint", f"{view.endpoint}, {view.clients} clients{_turned_away(view)}"),
        ("runtime", f"{view.backend}, {view.backend_error or 'answers'}"),
        ("store", f"{view.pods} pods, {view.containers} containers"),
        ("hooks", f"{view.config_dir}, {view.config_error or f'{len(view.files)} files'}"),
    ]
    found = [f"{name:<10} {output.clean(text)}" for name, text in facts]
    for title, header, rows in (
        ("Hook servers", ("FILE", "SOCKET", "POLICY", "HOOKS", "ERROR"), _files(view)),
        ("Left alone after failures", ("SOCKET", ">RETRY IN", "WHY"), _open(view)),
        (
            "Methods",
            (
                *("METHOD", ">CALLS", ">INTERCEPTED", ">CHANGED", ">FAILURES"),
                *(">HOOK FAILURES", ">REFUSED", ">ADDED P50", ">P99"),
            ),
            _methods(view),
        ),
    ):
        table = list(rows)
        if table:
            found += output.section(title, output.columns(header, table))
    return found


def _turned_away(view: ProxyView) -> str:
    return f", {view.turned_away} connections turned away" if view.turned_away else ""


def _files(view: ProxyView) -> Iterable[Row]:
    for file in view.files:
        yield file.name, file.socket, file.failure_policy, ",".join(file.hooks), file.error


def _open(view: ProxyView) -> Iterable[Row]:
    for server in view.servers:
        if not server.closed:
            yield server.socket, output.span(server.retry_in_s), server.error


def _methods(view: ProxyView) -> Iterable[Row]:
    for each in view.methods:
        counts = (each.calls, each.intercepted, each.changed, each.failures)
        name = each.method.removeprefix("/runtime.v1.")
        hooks = (each.hook_failures, each.refused)
        added = (each.added_p50_s, each.added_p99_s)
        shown = ("-" if bound is None else f"<= {output.span(bound)}" for bound in added)
        yield name, *map(str, counts), *map(str, hooks), *shown


def _path(endpoint: str) -> str:
    """Kubelet's flag has a scheme, the reference's has none; both are understood."""
    return endpoint.removeprefix("unix://")
