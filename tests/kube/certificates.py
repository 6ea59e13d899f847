"""Certificates for loopback, made by openssl."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple


class Pair(NamedTuple):
    certificate: Path
    key: Path


def authority(directory: Path, name: str) -> Pair:
    made = Pair(directory / f"{name}.crt", directory / f"{name}.key")
    _openssl("req", "-x509", *_new(made.key), "-subj", f"/CN={name}", "-out", made.certificate)
    return made


def signed(directory: Path, name: str, by: Pair) -> Pair:
    """For a server on 127.0.0.1 or a client of this name."""
    made = Pair(directory / f"{name}.crt", directory / f"{name}.key")
    request, extensions = directory / f"{name}.csr", directory / f"{name}.ext"
    _openssl("req", *_new(made.key), "-subj", f"/CN={name}", "-out", request)
    extensions.write_text("subjectAltName = IP:127.0.0.1\n")
    ca = ("-CA", by.certificate, "-CAkey", by.key, "-CAcreateserial")
    _openssl("x509", "-req", "-in", request, *ca, "-extfile", extensions, "-out", made.certificate)
    return made


def server(pair: Pair, clients: Pair | None = None) -> ssl.SSLContext:
    """``clients``: the authority whose certificates callers must show."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    if clients is not None:
        context.load_verify_locations(clients.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # `authority` has no key usage
    return context


def _new(key: Path) -> tuple[str | Path, ...]:
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    return (*curve, "-nodes", "-keyout", key)


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
