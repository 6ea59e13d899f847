"""Who is at the other end, and who we are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koordlet.kube.client import Client
from koordlet.kube.credentials import REREAD_S, Cluster, Material
from koordlet.kube.errors import CredentialsError, KubeError, NotSentError
from koordlet.kube.tls import TlsContext
from tests.fakekube import serving
from tests.kube.certificates import Pair, authority, server, signed


def _of(path: Path) -> Material:
    return Material(str(path))


def _text(path: Path) -> Material:
    return Material(text=path.read_bytes())


async def _asks(url: str, ca: Path, client: Pair | None = None, **fields: object) -> None:
    pair = {"certificate": _text(client[0]), "key": _text(client[1])} if client else {}
    cluster = Cluster(url, "the test", ca=_of(ca), **pair, **fields)  # type: ignore[arg-type]
    async with Client(cluster) as asked:
        await asked.raw("/version")


def test_only_the_server_that_our_authority_vouches_for(tmp_path: Path) -> None:
    async def run() -> None:
        ours, foreign = authority(tmp_path, "ours"), authority(tmp_path, "foreign")
        async with serving(tls=server(signed(tmp_path, "server", ours))) as fake:
            await _asks(fake.url, ours.certificate)
            with pytest.raises(NotSentError, match=r"(?i)certificate verify failed"):
                await _asks(fake.url, foreign.certificate)
            with pytest.raises(NotSentError, match=r"(?i)certificate"):
                await _asks(fake.url, ours.certificate, server_name="somebody.else")
            await _asks(fake.url, foreign.certificate, verify=False)

    asyncio.run(run())


def test_any_trusted_certificate_ends_a_chain_on_every_python(tmp_path: Path) -> None:
    """As in Kubernetes' own clients: an intermediate authority, or the server itself."""

    async def run() -> None:
        pair = signed(tmp_path, "server", authority(tmp_path, "ours"))
        async with serving(tls=server(pair)) as fake:
            await _asks(fake.url, pair.certificate)

    asyncio.run(run())


def test_a_client_certificate_given_as_text(tmp_path: Path) -> None:
    async def run() -> None:
        ours = authority(tmp_path, "ours")
        tls = server(signed(tmp_path, "server", ours), clients=ours)
        async with serving(tls=tls) as fake:
            await _asks(fake.url, ours.certificate, signed(tmp_path, "node", ours))
            with pytest.raises(KubeError):
                await _asks(fake.url, ours.certificate)
            with pytest.raises(CredentialsError, match="no certificate with its key"):
                other = signed(tmp_path, "other", ours)
                await _asks(fake.url, ours.certificate, Pair(ours.certificate, other.key))

    asyncio.run(run())


def test_renewed_files_are_taken_up_and_half_of_a_pair_is_not(tmp_path: Path) -> None:
    now = 0.0
    ours = authority(tmp_path, "ours")
    used, renewed = signed(tmp_path, "node", ours), signed(tmp_path, "renewed", ours)
    cluster = Cluster(
        "https://127.0.0.1",
        "the test",
        ca=_of(ours.certificate),
        certificate=_of(used.certificate),
        key=_of(used.key),
    )
    tls = TlsContext(cluster, lambda: now)
    first = tls.current()
    used.certificate.write_bytes(renewed.certificate.read_bytes())
    assert tls.current() is first
    now += REREAD_S
    assert tls.current() is first  # the key is still the old one
    used.key.write_bytes(renewed.key.read_bytes())
    now += REREAD_S
    second = tls.current()
    assert second is not first
    now += REREAD_S
    assert tls.current() is second
    ours.certificate.unlink()
    now += REREAD_S
    assert tls.current() is second
