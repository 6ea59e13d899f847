"""etcd and kube-apiserver on free ports of loopback, with a directory of their own.

Nothing of it outlives the process that started it, and nobody else on the machine is touched.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from koordlet.kube.credentials import Cluster, Material
from tests.realkube.binaries import program, why_not
from tests.runtime.process import Process

READY_S = 120.0
"""It takes 3 s on a machine that has nothing else to do."""
ISSUER = "https://kubernetes.default.svc"
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted", "Panic"],
    "rules": [
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete"]},
        {"level": "None"},
    ],
}


class Write(NamedTuple):
    """A kind of write: ``agent`` is the program's name, ``resource`` as ``pods/status``."""

    agent: str
    verb: str
    resource: str


class ControlPlane:
    """``admin`` may do everything. ``start_server`` and ``end_server`` are for tests that take the
    API server away: it keeps its port, its certificate and, in etcd, its objects."""

    def __init__(
        self,
        work: Path,
        users: Mapping[str, tuple[str, ...]] | None = None,
        options: tuple[str, ...] = (),
    ) -> None:
        """``users``: name -> groups, of those that get a token of their own. ``options``: further
        ones of kube-apiserver."""
        self.work, self._options = work, options
        self.shared = False
        """Say that tests follow one another on it."""
        self.port, self._etcd_port, self._peer_port = free_ports(3)
        self.url = f"https://127.0.0.1:{self.port}"
        self._users = {"admin": ("system:masters",), **(users or {})}
        self._tokens = {name: secrets.token_hex(16) for name in self._users}
        self._token = self._tokens["admin"]
        self._audit = work / "audit.log"
        self._trust: ssl.SSLContext | None = None
        self._etcd = Process(self._etcd_command(), work / "etcd.log")
        self._server = Process(self._server_command(), work / "kube-apiserver.log")

    @property
    def ca(self) -> Path:
        return self.work / "pki" / "apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        """Of the administrator."""
        return self.kubeconfig_of("admin", self._token)

    def kubeconfig_of(self, name: str, token: str = "") -> Path:
        """Of one of ``users``, or of a bearer of ``token``, such as a ServiceAccount's."""
        path = self.work / f"{name.replace(':', '-')}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.ca)}
        tree = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token or self._tokens[name]}}],
        }
        path.touch(0o600)
        path.write_text(json.dumps(tree))  # which is YAML too
        return path

    @property
    def admin(self) -> Cluster:
        return Cluster(
            self.url,
            "the test",
            ca=Material(str(self.ca)),
            token=Material(text=self._token.encode()),
        )

    def start(self) -> None:
        """Returns when it is ready. Raises TimeoutError with the end of its log."""
        lines = [
            f'{self._tokens[name]},{name},{name},"{",".join(groups)}"\n'
            for name, groups in self._users.items()
        ]
        (self.work / "tokens.csv").write_text("".join(lines))
        (self.work / "audit.json").write_text(json.dumps(_AUDIT))
        key = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"]
        subprocess.run([*key, "-out", self.work / "sa.key"], check=True, capture_output=True)
        self._etcd.start()
        self.start_server()

    def start_server(self) -> None:
        self._server.start()
        until_s = time.monotonic() + READY_S
        while not self._ready():
            if time.monotonic() > until_s or not self._server.is_running:
                raise TimeoutError(f"kube-apiserver is not ready: {self._server.said()[-2000:]}")
            time.sleep(0.1)

    def end_server(self, number: int = 15) -> None:
        self._server.end(number)

    @property
    def serves(self) -> bool:
        return self._server.is_running

    def end(self) -> None:
        self._server.end()  # before etcd, or it hangs
        self._etcd.end()

    def get(self, path: str) -> Any:
        """What the administrator is told, as JSON; None where it does not exist. For waits, because
        kubectl takes a hundred times the CPU. Raises OSError while the server is away."""
        try:
            return json.loads(self._get(path))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def send(self, method: str, path: str, body: Any, within_s: float = 10) -> None:
        """Write as the administrator. Raises OSError, of which a refusal is an HTTPError."""
        self._get(path, method, json.dumps(body).encode(), within_s)

    def _get(
        self, path: str, method: str = "GET", body: bytes | None = None, within_s: float = 10
    ) -> bytes:
        if self._trust is None:
            self._trust = ssl.create_default_context(cafile=str(self.ca))
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        head = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        request = urllib.request.Request(self.url + path, body, head, method=method)
        with urllib.request.urlopen(request, timeout=within_s, context=self._trust) as answer:
            found: bytes = answer.read()
            return found

    def writes(self) -> Counter[Write]:
        """All that were taken since it was made, whatever became of the server meanwhile."""
        found: Counter[Write] = Counter()
        for line in self._audit.read_text().splitlines() if self._audit.exists() else ():
            try:
                told = json.loads(line)
            except ValueError:  # it was killed in the middle of a line
                continue
            if told.get("responseStatus", {}).get("code", 500) < 300:
                target = told.get("objectRef", {})
                parts = (target.get("resource", ""), target.get("subresource", ""))
                agent = told.get("userAgent", "").split("/")[0]
                found[Write(agent, told["verb"], "/".join(filter(None, parts)))] += 1
        return found

    def _ready(self) -> bool:
        if not self.ca.exists():
            return False
        try:
            return self._get("/readyz") == b"ok"
        except OSError:
            return False

    def _etcd_command(self) -> list[str | Path]:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        return [
            program("etcd"),
            f"--data-dir={self.work / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _server_command(self) -> list[str | Path]:
        return [
            program("kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self.port}",
            f"--cert-dir={self.work / 'pki'}",
            f"--token-auth-file={self.work / 'tokens.csv'}",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={self.work / 'sa.key'}",
            f"--service-account-signing-key-file={self.work / 'sa.key'}",
            "--authorization-mode=Node,RBAC",
            "--kubelet-preferred-address-types=InternalIP",
            # No controller manager says that nodes and service accounts are in order.
            "--disable-admission-plugins=TaintNodesByCondition,ServiceAccount",
            "--allow-privileged=true",
            f"--audit-policy-file={self.work / 'audit.json'}",
            f"--audit-log-path={self._audit}",
            "--v=1",
            *self._options,
        ]


@contextlib.contextmanager
def control_plane(work: Path, *options: str) -> Iterator[ControlPlane]:
    """Start a control plane of a test's own; the test is skipped where none can run."""
    if reason := why_not():
        pytest.skip(reason)
    made = ControlPlane(work, options=options)
    try:
        made.start()
        yield made
    finally:
        made.end()


def free_ports(count: int) -> list[int]:
    """Different ones, because all are open at once."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
