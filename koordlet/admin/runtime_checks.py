"""What ``doctor`` says about the way to the container runtime: is NRI really on, and does kubelet
ask through the CRI proxy; how to turn each on, and back. And who writes koordlet's files too."""

from __future__ import annotations

from collections.abc import Iterator

from koordlet.actuator.sharing import SHARERS
from koordlet.admin.model.doctor import CheckState, CheckView
from koordlet.admin.nri_check import LATE
from koordlet.admin.runtime_config import (
    CONTAINERD_CONFIG,
    CRIO_CONFIG,
    Dump,
    Endpoint,
    NriSwitches,
    UnreadableError,
    containerd_nri,
    crio_nri,
    kubelet_endpoint,
    plain_path,
    processes,
)
from koordlet.kernel.host import Host
from koordlet.kernel.units import not_running

DROP_IN = "/etc/containerd/conf.d/koordlet-nri.toml"
_CONTAINERD_ON = (
    "in [plugins.'io.containerd.nri.v1.nri']: disable = false, disable_connections = false "
    f"(`tools/install-service --containerd-nri` puts that into {DROP_IN}, which {{file}} must "
    "import); then restart containerd"
)
_CRIO_ON = "in [crio.nri] of a file in {file}.d: enable_nri = true; then restart crio"
_PROXY_ON = (
    "switch NRI on; where the runtime has none: `tools/install-service --runtime-proxy`, "
    "`systemctl enable --now koord-runtime-proxy.socket`, then start kubelet with "
    "--container-runtime-endpoint=unix://{socket}"
)

_NO_RUNTIME = CheckView(
    name="container runtime", state=CheckState.OK, why="neither containerd nor CRI-O runs here"
)


def runtime_checks(
    host: Host,
    proxy_socket: str,
    dump: Dump,
    proc_root: str = "/proc",
    *,
    connected: bool | None = None,
) -> tuple[CheckView, ...]:
    """What each runtime that runs has switched on, and whom kubelet asks. ``proxy_socket``: where
    the proxy listens. ``connected``: whether koordlet is connected by NRI, None where no daemon
    says it; that it is possible does not mean that it works."""
    nri = tuple(_nri(host, dump, proc_root))
    works = any(check.state is CheckState.OK for check in nri) and connected is not False
    kubelet = _kubelet(host, proxy_socket, proc_root, nri_works=works)
    return (*(nri or (_NO_RUNTIME,)), kubelet)


def sharers(host: Host, proc_root: str = "/proc") -> Iterator[CheckView]:
    """Return who of those that run here writes files of koordlet by right."""
    runs = {
        "kubelet": bool(processes(host, "kubelet", proc_root)),
        "systemd": not not_running(host),
    }
    for each in SHARERS:
        if runs[each.program]:
            why = f"{each.when}: {each.effect}; koordlet writes its values there again"
            name = f"shared files: {each.who}"
            yield CheckView(name=name.replace("`", ""), state=CheckState.OK, why=why)


def _nri(host: Host, dump: Dump, proc_root: str) -> Iterator[CheckView]:
    for process in processes(host, "containerd", proc_root):
        file = process.option("--config", "-c") or CONTAINERD_CONFIG
        name = f"container runtime: containerd, pid {process.pid}"
        try:
            yield _verdict(host, name, containerd_nri(host, file, dump), _CONTAINERD_ON)
        except UnreadableError as error:
            yield _unreadable(name, error)
    for process in processes(host, "crio", proc_root):
        file = process.option("--config", "-c") or CRIO_CONFIG
        name = f"container runtime: CRI-O, pid {process.pid}"
        try:
            yield _verdict(host, name, crio_nri(host, file), _CRIO_ON)
        except UnreadableError as error:
            yield _unreadable(name, error)


def _verdict(host: Host, name: str, found: NriSwitches, turn_on: str) -> CheckView:
    there = host.exists(found.socket)
    remedy = turn_on.format(file=found.file)
    if not found.serves_pods:
        return CheckView(name=name, state=CheckState.OK, why=f"no CRI in {found.file}: no pods")
    if found.disabled:
        why = f"NRI is switched off in {found.file}, or what it imports"
    elif found.connections_disabled:
        why = f"NRI is on, but plugins may not connect: disable_connections in {found.file}"
    elif there:
        return CheckView(
            name=name,
            state=CheckState.OK,
            why=f"NRI is on, {found.socket} is there; to go back, take the setting away and "
            "restart",
        )
    elif found.disabled is None:
        why = (
            f"{found.file} says nothing of NRI, and there is no {found.socket}: off by default here"
        )
    else:
        why = f"NRI is on in {found.file}, but there is no {found.socket}"
        remedy = "restart the runtime; if the socket stays away, its log says why"
    return CheckView(name=name, state=CheckState.LIMITED, why=why, cost=LATE, remedy=remedy)


def _kubelet(host: Host, proxy_socket: str, proc_root: str, *, nri_works: bool) -> CheckView:
    name = "CRI proxy"
    running = processes(host, "kubelet", proc_root)
    try:
        endpoint = kubelet_endpoint(host, running[0] if running else None)
    except UnreadableError as error:
        return _unreadable(name, error)
    if endpoint is None:
        return CheckView(name=name, state=CheckState.OK, why="no kubelet on this machine")
    if endpoint.path == plain_path(proxy_socket):
        return _through_proxy(host, name, endpoint, nri_works=nri_works)
    why = f"kubelet asks {endpoint.address} directly ({endpoint.origin})"
    if nri_works:
        return CheckView(name=name, state=CheckState.OK, why=f"{why}; NRI makes it unnecessary")
    remedy = _PROXY_ON.format(socket=plain_path(proxy_socket))
    return CheckView(name=name, state=CheckState.LIMITED, why=why, cost=LATE, remedy=remedy)


def _through_proxy(host: Host, name: str, endpoint: Endpoint, *, nri_works: bool) -> CheckView:
    back = "to go back, give kubelet the runtime's own socket and restart it, then stop the proxy"
    if not host.exists(endpoint.path):
        return CheckView(
            name=name,
            state=CheckState.FAIL,
            why=f"kubelet asks {endpoint.address} ({endpoint.origin}), which does not exist",
            cost="kubelet reaches no container runtime: the node is not ready, no pod starts",
            remedy=f"`systemctl enable --now koord-runtime-proxy.socket`; {back}",
        )
    also = "; NRI is on as well, so the proxy could go" if nri_works else ""
    why = f"kubelet asks through it ({endpoint.origin}){also}; {back}"
    return CheckView(name=name, state=CheckState.OK, why=why)


def _unreadable(name: str, error: UnreadableError) -> CheckView:
    return CheckView(
        name=name,
        state=CheckState.LIMITED,
        why=str(error),
        cost="how the runtime is set up is not known here",
        remedy="run doctor as root; if it stays, mend the file",
    )
