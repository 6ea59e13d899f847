"""Who gets in to the webhooks, who goes first, and who has to go."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gc
import itertools
import json
import socket
import ssl
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from koord_scheduler.webhook import door, line, server
from koord_scheduler.webhook.certificates import Bundle, renewed
from koord_scheduler.webhook.handlers import Settings
from koord_scheduler.webhook.review import MOST_VALUES
from koord_scheduler.webhook.server import Outcomes, Server, load_pair, tls_context
from koord_scheduler.webhook.turns import Peer, Turns
from tests.companion.webhook.stories import pod
from tests.kube.worlds import until

BODY = json.dumps(
    {"request": {"uid": "u", "operation": "CREATE", "namespace": "n", "object": pod("p")}}
).encode()
HEAD = b"POST /validate-pod HTTP/1.1\r\nHost: w\r\nContent-Length: %d\r\n\r\n"


class _World:
    """A cluster without anything, except what a test lets a review wait for."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.go_on.set()

    def __getattr__(self, name: str) -> Any:
        if name == "namespace_labels":
            return self._labels
        from koord_scheduler.admission.quotas import Quotas

        return lambda: Quotas() if name == "quotas" else () if name != "priority_classes" else {}

    async def _labels(self, _name: str) -> dict[str, str]:
        await self.go_on.wait()
        return {}


def bundle() -> Bundle:
    made = renewed(None, ("127.0.0.1",), datetime.datetime.now(datetime.UTC), trusted=False)
    assert made is not None
    return made


class Stage(NamedTuple):
    port: int
    trust: ssl.SSLContext
    outcomes: Outcomes
    world: _World

    async def connect(self, *, tls: ssl.SSLContext | None = None, plain: bool = False) -> Any:
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=None if plain else tls or self.trust
        )

    async def until_dropped(self, why: str, number: int = 1) -> None:
        async with asyncio.timeout(20):
            while self.outcomes.dropped[why] < number:
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def staged(authorities: str = "") -> AsyncIterator[Stage]:
    made, outcomes, world = bundle(), Outcomes(), _World()
    tls = tls_context(authorities)
    load_pair(tls, made.certificate, made.key)
    trust = ssl.create_default_context(cadata=made.authorities.decode())
    async with Server(world, Settings(), outcomes).serving(tls, "127.0.0.1", 0) as port:
        yield Stage(port, trust, outcomes, world)


async def asked(reader: Any, writer: Any, body: bytes = BODY) -> bytes:
    writer.write(HEAD % len(body) + body)
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head, head
    size = next(each for each in head.lower().split(b"\r\n") if b"content-length" in each)
    return bytes(await reader.readexactly(int(size.partition(b":")[2])))


def test_what_does_not_speak_tls_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HELLO_S", 1.0)
    # How long the kernel keeps a silent connection to itself is its own affair.
    monkeypatch.setattr(socket, "TCP_DEFER_ACCEPT", socket.TCP_NODELAY)

    async def story() -> None:
        async with staged() as stage:
            reader, writer = await stage.connect(plain=True)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await stage.until_dropped("no TLS")
            with contextlib.suppress(ConnectionError):
                assert not await reader.read()
            kept = await stage.connect(plain=True)
            await stage.until_dropped("silent")
            kept[1].close()

    asyncio.run(story())


def test_deadlines_and_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "READ_S", 0.3)
    monkeypatch.setattr(door, "MOST_HELD_BYTES", 420_000)

    async def story() -> None:
        async with staged() as stage:
            _, slow = await stage.connect()
            slow.write(HEAD % 100)
            for _ in range(20):  # each byte is progress; the deadline is that of the whole
                slow.write(b" ")
                await asyncio.sleep(0.02)
            await stage.until_dropped("slow")
            # What is announced takes nothing; what has come counts, and who holds most goes.
            several = [await stage.connect() for _ in range(4)]
            for number, (_, writer) in enumerate(several):
                writer.write(HEAD % (8 << 20) + b" " * 50_000 * (number + 1))
                await asyncio.sleep(0.05)
            await stage.until_dropped("memory")
            assert b"true" in await asked(*await stage.connect())
            assert stage.outcomes.dropped["memory"] == 1
            # Two requests before the first is answered.
            stage.world.go_on.clear()
            _, eager = await stage.connect()
            eager.write((HEAD % len(BODY)).replace(b"validate", b"mutate") + BODY)
            await asyncio.sleep(0.1)
            eager.write(HEAD % len(BODY) + BODY)
            await stage.until_dropped("pipelined")

    asyncio.run(story())


def test_places_go_from_the_idlest_to_newcomers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "OPEN", 4)
    monkeypatch.setattr(door, "OPEN_OF_ONE", 3)

    async def story() -> None:
        async with staged() as stage:
            lines = []
            for _ in range(6):
                lines.append(await stage.connect())
                assert b"true" in await asked(*lines[-1])
            assert stage.outcomes.dropped["full"] == 3
            for reader, _ in lines[:3]:
                with contextlib.suppress(ConnectionError):
                    assert not await reader.read()
            for reader, writer in lines[3:]:
                assert b"true" in await asked(reader, writer)

    asyncio.run(story())


def test_who_shows_a_certificate_has_a_place_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(door, "OPEN", 1)
    monkeypatch.setattr(door, "OPEN_OF_ONE", 1)
    signed, stranger = bundle(), bundle()
    (tmp_path / "ca").write_bytes(signed.authorities)
    for name, each in (("signed", signed), ("stranger", stranger)):
        (tmp_path / name).write_bytes(of_a_client(each))

    async def story() -> None:
        async with staged(str(tmp_path / "ca")) as stage:

            def showing(name: str) -> ssl.SSLContext:
                made = ssl.create_default_context()
                made.load_verify_locations(cadata=_pem(stage.trust))
                made.load_cert_chain(tmp_path / name)
                return made

            first = await stage.connect(tls=showing("signed"))
            assert b"true" in await asked(*first)
            for _ in range(3):
                assert b"true" in await asked(*await stage.connect())
            assert b"true" in await asked(*first)
            # A certificate of somebody else is worse than none.
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await asked(*await stage.connect(tls=showing("stranger")))

    asyncio.run(story())


def of_a_client(authority: Bundle) -> bytes:
    """A certificate as an API server has it, and its key."""
    by = x509.load_pem_x509_certificates(authority.authorities)[0]
    signing = serialization.load_pem_private_key(authority.authority_key, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")]))
        .issuer_name(by.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signing, hashes.SHA256())
    )
    none = serialization.NoEncryption()
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return made.public_bytes(pem) + key.private_bytes(pem, form, none)


def _pem(context: ssl.SSLContext) -> str:
    return "".join(map(ssl.DER_cert_to_PEM_cert, context.get_ca_certs(binary_form=True)))


def test_a_refused_review_is_gone_with_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when garbage is collected, which is long after many large ones."""
    bodies: list[weakref.ref[bytearray]] = []

    class Body(bytearray):
        def __init__(self) -> None:
            bodies.append(weakref.ref(self))

    monkeypatch.setattr(server, "bytearray", Body, raising=False)
    too_much = BODY.replace(b'"name"', b'"x":[' + b"0," * MOST_VALUES + b'0],"name"', 1)

    async def story() -> None:
        async with staged() as stage:
            reader, writer = await stage.connect()
            for body in (too_much, BODY):
                await asked(reader, writer, body)
            refused, _ = bodies
            await until(lambda: refused() is None)  # the thread that read it lets go of it too

    gc.collect()
    gc.disable()
    try:
        asyncio.run(story())
    finally:
        gc.enable()


def test_turns_are_fair() -> None:
    async def story() -> None:
        clock = itertools.count()
        turns, order = Turns(1, lambda: next(clock) / 100), []

        async def ask(name: str, address: str, size: int, spends: float = 0.0, **more: Any) -> None:
            peer = Peer(address, **more)
            await turns.take(peer, size)
            order.append(name)
            turns.give(peer, spends)

        await ask("cost", "a", 1, 5.0)
        await asyncio.gather(
            ask("large of a", "a", 100),
            ask("large of b", "b", 90),
            ask("small of a", "a", 1),
            ask("small of b", "b", 2),
            ask("certified", "a", 1000, first=True),
        )
        wanted = ["certified", "small of b", "large of b", "small of a", "large of a"]
        assert order == ["cost", *wanted]
        # One that gives up leaves its turn to the next.
        await turns.take(Peer("a"))
        waiting = [asyncio.ensure_future(ask(f"w{n}", "a", n)) for n in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        turns.give(Peer("a"), 0.0)
        waiting[1].cancel()
        await asyncio.wait_for(waiting[2], 5)
        assert order[-1] == "w2" and not len(turns)
        # What somebody cost is forgotten.
        for _ in range(3000):
            turns.give(Peer("z"), 0.0)
        assert "a" not in turns._spent_s

    asyncio.run(story())
