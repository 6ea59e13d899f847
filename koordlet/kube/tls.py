"""TLS to the API server: contexts that follow renewed certificates."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable

from koordlet.kube.credentials import REREAD_S, Cluster, Material
from koordlet.kube.errors import CredentialsError


class TlsContext:
    """The context for ``cluster``, made anew when one of its files was."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._made: ssl.SSLContext | None = None
        self._of: tuple[bytes, ...] = ()
        self._looked_s = 0.0

    def current(self) -> ssl.SSLContext:
        """Raises CredentialsError where a file cannot be used and none before it could."""
        now = self._clock()
        if self._made is not None and now - self._looked_s < REREAD_S:
            return self._made
        self._looked_s = now
        try:
            texts = tuple(each.read() if each else b"" for each in self._files())
            if self._made is None or texts != self._of:
                self._made, self._of = _context(self._cluster, *texts), texts
        except CredentialsError:
            # Half of a pair may be renewed already; the old one is good until it expires.
            if self._made is None:
                raise
        return self._made

    def _files(self) -> tuple[Material | None, ...]:
        return self._cluster.ca, self._cluster.certificate, self._cluster.key


def trusting(*, file: str = "", data: str = "") -> ssl.SSLContext:
    """Return a client's context that trusts these authorities, the machine's own where both are
    empty, by the rules of Kubernetes' own clients on every Python: 3.13 also wants a key usage in
    an authority, which plain `openssl req -x509` leaves out, and takes an intermediate one for an
    anchor, which older ones do not. Raises OSError and ValueError."""
    context = ssl.create_default_context(cafile=file or None, cadata=data or None)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _context(cluster: Cluster, ca: bytes, certificate: bytes, key: bytes) -> ssl.SSLContext:
    try:
        context = trusting(data=ca.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
        raise CredentialsError(f"{_where(cluster.ca)}: no PEM certificates ({error})") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not cluster.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        _load_pair(context, cluster, certificate, key)
    return context


def _load_pair(context: ssl.SSLContext, cluster: Cluster, certificate: bytes, key: bytes) -> None:
    """Python loads a pair from files alone; a key given as text is never put on a disk."""
    descriptor = os.memfd_create("koordlet-client-pair")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(certificate + b"\n" + key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except (ssl.SSLError, OSError) as error:
        where = f"{_where(cluster.certificate)} and {_where(cluster.key)}"
        raise CredentialsError(f"{where}: no certificate with its key ({error})") from None
    finally:
        os.close(descriptor)


def _where(material: Material | None) -> str:
    return (material.path if material else "") or "the data in the kubeconfig"
