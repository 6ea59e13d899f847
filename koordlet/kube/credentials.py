"""Where the API server is, and who we are: a pod's service account, or a kubeconfig file."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from koordlet.kube.errors import CredentialsError
from koordlet.protocol.decode import decode
from koordlet.protocol.errors import ProtocolError

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
REREAD_S = 10.0
"""How long the text of a file is used before it is read again. Kubelet renews a token when a fifth
of its hour is left."""
_MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class Material:
    """A certificate, key or token: a file that may be renewed, or its text."""

    path: str = ""
    text: bytes = field(default=b"", repr=False)

    def read(self) -> bytes:
        """Raises CredentialsError where the file cannot be read."""
        if not self.path:
            return self.text
        try:
            with open(self.path, "rb") as file:
                return file.read(_MAX_FILE_BYTES)
        except OSError as error:
            raise CredentialsError(f"{self.path}: {error.strerror}") from None


@dataclass(frozen=True)
class Cluster:
    """One API server and one user of it.

    ``verify`` False: whoever wrote the kubeconfig asked not to check the server's certificate.
    ``namespace``: the one that commands mean where none is named.
    """

    server: str
    source: str
    ca: Material | None = None
    verify: bool = True
    server_name: str = ""
    certificate: Material | None = None
    key: Material | None = None
    token: Material | None = None
    namespace: str = "default"

    @property
    def host(self) -> str:
        return urlsplit(self.server).hostname or ""


class BearerToken:
    """The text of a token whose file may be renewed at any time."""

    def __init__(self, material: Material, clock: Callable[[], float]) -> None:
        self._material = material
        self._clock = clock
        self._text = ""
        self._read_s = -REREAD_S

    def text(self) -> str:
        """Raises CredentialsError where the file cannot be read and never could."""
        now = self._clock()
        if now - self._read_s >= REREAD_S:
            try:
                self._text = self._material.read().decode("ascii").strip()
            except UnicodeDecodeError:
                where = self._material.path or "the token"
                raise CredentialsError(f"{where}: a token is ASCII text") from None
            except CredentialsError:
                # The old token may be good for minutes yet; kubelet is about to write a new one.
                if not self._text:
                    raise
            self._read_s = now
        return self._text

    def renew(self) -> None:
        """The server refused it: read the file again with the next request."""
        self._read_s = self._clock() - REREAD_S


def in_cluster(
    environ: Mapping[str, str] = os.environ, directory: str = SERVICE_ACCOUNT
) -> Cluster | None:
    """Of the pod we run in; None where we run in none. Raises CredentialsError."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        return None
    ca, token = Material(f"{directory}/ca.crt"), Material(f"{directory}/token")
    ca.read()
    token.read()
    try:
        namespace = Material(f"{directory}/namespace").read().decode("ascii").strip()
    except (CredentialsError, UnicodeDecodeError):
        namespace = ""
    return Cluster(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        source=directory,
        ca=ca,
        token=token,
        namespace=namespace or "default",
    )


class _Kebab(msgspec.Struct, frozen=True, rename="kebab"):
    """Keys as in a kubeconfig file."""


class _Cluster(_Kebab, frozen=True):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _User(_Kebab, frozen=True):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    exec: dict[str, Any] | None = None
    auth_provider: dict[str, Any] | None = None
    as_: str = msgspec.field(default="", name="as")


class _Context(_Kebab, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Kebab, frozen=True):
    name: str
    cluster: _Cluster = _Cluster()


class _NamedUser(_Kebab, frozen=True):
    name: str
    user: _User = _User()


class _NamedContext(_Kebab, frozen=True):
    name: str
    context: _Context = _Context()


class _File(_Kebab, frozen=True):
    current_context: str = ""
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


_UNUSABLE: tuple[tuple[str, str], ...] = (
    (
        "exec",
        "koordlet starts no other program to log in; use a token file or a client certificate",
    ),
    ("auth_provider", "Kubernetes removed these; use a token file or a client certificate"),
    ("username", "the API server no longer takes passwords; use a token or a client certificate"),
    ("as_", "koordlet does not act as somebody else; give it a user of its own"),
)
"""Ways to log in that are refused: field of the user, what to do instead."""

N = TypeVar("N", _NamedCluster, _NamedUser, _NamedContext)


def from_kubeconfig(path: str, context: str = "") -> Cluster:
    """``path``: one file, or several with colons between, of which the first with a name counts, as
    for kubectl. ``context`` empty: the current one. Raises CredentialsError."""
    paths = [each for each in path.split(":") if each]
    files = [(each, _load(each)) for each in paths if len(paths) == 1 or os.path.exists(each)]
    if not files:
        raise CredentialsError(f"{path}: no such file")
    wanted = context or next((f.current_context for _, f in files if f.current_context), "")
    if not wanted:
        raise CredentialsError(f"{path}: current-context is not set; name a context")
    _, chosen = _named(files, "contexts", wanted, path)
    cluster_file, cluster = _named(files, "clusters", chosen.context.cluster, path)
    user_file, user = _named(files, "users", chosen.context.user, path)
    return _cluster(
        cluster_file,
        cluster,
        *_user(user_file, user),
        source=f"{path}, context {wanted}",
        namespace=chosen.context.namespace or "default",
    )


def _load(path: str) -> _File:
    import yaml

    text = Material(path).read()
    try:
        tree = yaml.safe_load(text)
        return decode(_File, tree or {}, strict=False)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark is not None else ""
        raise CredentialsError(f"{path}{where}: not YAML") from None
    except ProtocolError as error:
        raise CredentialsError(f"{path}: {error}") from None


def _named(files: Sequence[tuple[str, _File]], what: str, name: str, path: str) -> tuple[str, Any]:
    """The first entry of list ``what`` with this name, and the file it stands in."""
    for file, content in files:
        for entry in getattr(content, what):
            if entry.name == name:
                return file, entry
    raise CredentialsError(f"{path}: {what} has no entry {name!r}")


def _user(file: str, named: _NamedUser) -> tuple[Material | None, Material | None, Material | None]:
    """Certificate, key, token."""
    user, where = named.user, f"{file}: user {named.name!r}"
    for attribute, instead in _UNUSABLE:
        if getattr(user, attribute):
            raise CredentialsError(f"{where}, {attribute.strip('_').replace('_', '-')}: {instead}")
    certificate = _material(
        file, user.client_certificate, user.client_certificate_data, f"{where}, client-certificate"
    )
    key = _material(file, user.client_key, user.client_key_data, f"{where}, client-key")
    if (certificate is None) != (key is None):
        raise CredentialsError(f"{where}: client-certificate and client-key belong together")
    token = None
    if user.token_file:
        token = Material(_beside(file, user.token_file))
    elif user.token:
        token = Material(text=user.token.encode())
    return certificate, key, token


def _cluster(
    file: str,
    named: _NamedCluster,
    certificate: Material | None,
    key: Material | None,
    token: Material | None,
    *,
    source: str,
    namespace: str,
) -> Cluster:
    cluster, where = named.cluster, f"{file}: cluster {named.name!r}"
    parts = urlsplit(cluster.server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CredentialsError(f"{where}, server: {cluster.server!r} is no URL with http or https")
    if cluster.proxy_url:
        raise CredentialsError(f"{where}, proxy-url: koordlet speaks to the server itself")
    if parts.scheme == "http" and (token or certificate) and not _is_loopback(parts.hostname):
        raise CredentialsError(
            f"{where}, server: a token or certificate over plain http can be read by anybody on "
            "the way; use https"
        )
    return Cluster(
        server=cluster.server.rstrip("/"),
        source=source,
        ca=_material(
            file,
            cluster.certificate_authority,
            cluster.certificate_authority_data,
            f"{where}, certificate-authority",
        ),
        verify=not cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name,
        certificate=certificate,
        key=key,
        token=token,
        namespace=namespace,
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _material(file: str, path: str, data: str, where: str) -> Material | None:
    """Data counts before a path, as for kubectl."""
    if data:
        try:
            return Material(text=base64.b64decode(data, validate=True))
        except binascii.Error:
            raise CredentialsError(f"{where}-data: not base64") from None
    return Material(_beside(file, path)) if path else None


def _beside(file: str, path: str) -> str:
    """A relative path starts at the directory of the kubeconfig."""
    return os.path.join(os.path.dirname(os.path.abspath(file)), path)
