"""The REST interface of a ResourceManager: what was recorded, and every way to fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koord_scheduler.sinks import yarn_client
from koord_scheduler.sinks.yarn_client import (
    Access,
    ResourceManager,
    YarnError,
    YarnNode,
    parse_managers,
)
from koord_scheduler.sinks.yarn_shares import NOTHING, Share
from tests.companion.sinks.yarn_fake import RECORDED, fake_yarn

NODE = "localhost:8041"
USED = YarnNode(NODE, Share(3, 2048), Share(2, 512))


async def _nodes(body: bytes) -> list[YarnNode]:
    async with fake_yarn() as yarn, ResourceManager((yarn.url,)) as manager:
        yarn.body = body
        return await manager.nodes()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nodes", [YarnNode(NODE, Share(1, 1024), NOTHING)]),
        ("nodes-in-use", [USED]),
        ("no-nodes", []),
    ],
)
def test_recorded_answers(name: str, expected: list[YarnNode]) -> None:
    assert asyncio.run(_nodes((RECORDED / f"{name}.json").read_bytes())) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"nodes":null}', []),
        (b'{"nodes":{"node":null}}', []),
        # One node as an object, as old versions write it, and none of the newer fields.
        (
            (
                b'{"nodes":{"node":{"id":"localhost:8041","state":"RUNNING","usedMemoryMB":512,'
                b'"usedVirtualCores":2,"availMemoryMB":1536,"availableVirtualCores":1}}}'
            ),
            [USED],
        ),
        (b'{"nodes":{"node":[{"id":"a:1","state":"LOST"},{"id":"b:1","state":"SHUTDOWN"}]}}', []),
    ],
)
def test_other_answers(body: bytes, expected: list[YarnNode]) -> None:
    assert asyncio.run(_nodes(body)) == expected


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"{}", b'{"nodes":5}', b'{"nodes":{"node":[{}]}}', b"\xff", b"[" * 9999],
)
def test_answers_of_something_else(body: bytes) -> None:
    with pytest.raises(YarnError, match="no answer of a ResourceManager"):
        asyncio.run(_nodes(body))


def test_an_offer() -> None:
    async def story() -> None:
        async with fake_yarn() as yarn:
            yarn.join(NODE)
            async with ResourceManager((yarn.url,), Access(user="koord")) as manager:
                await manager.offer(NODE, Share(7, 9000), 5000)
                assert yarn.total(NODE) == (7, 9000) and yarn.timeouts == [5000]
                assert yarn.users == {"koord"}
                with pytest.raises(YarnError, match=r"404 .*nodeId, gone:1, is not found"):
                    await manager.offer("gone:1", Share(1, 1))

    asyncio.run(story())


def test_of_several_the_active_one_is_asked() -> None:
    async def story() -> None:
        async with fake_yarn() as first, fake_yarn() as second:
            for each in (first, second):
                each.join(NODE)
            first.standby = True
            async with ResourceManager((first.url, second.url)) as manager:
                assert len(await manager.nodes()) == 1
                await manager.offer(NODE, Share(5, 5000))
                assert second.total(NODE) == (5, 5000) and first.total(NODE) == (1, 1024)
                asked = first.requests.total()
                await manager.nodes()
                assert first.requests.total() == asked
                first.standby, second.standby = False, True
                await manager.nodes()
                await manager.offer(NODE, Share(6, 6000))
                assert first.total(NODE) == (6, 6000)
                first.standby = True
                with pytest.raises(YarnError, match=r"not active.*; .*not active"):
                    await manager.nodes()

    asyncio.run(story())


@pytest.mark.parametrize("status", [400, 401, 403, 500, 503])
def test_refusals(status: int) -> None:
    async def story() -> None:
        async with fake_yarn() as yarn, ResourceManager((yarn.url,)) as manager:
            yarn.status = status
            with pytest.raises(YarnError, match=f"{status} .*a fault of the test"):
                await manager.nodes()

    asyncio.run(story())


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yarn_client, "DEADLINE_S", 0.3)

    async def story() -> None:
        async with ResourceManager(("http://127.0.0.1:1",)) as manager:
            with pytest.raises(YarnError, match=r"GET http://127\.0\.0\.1:1/ws/v1/cluster/nodes"):
                await manager.nodes()
        async with fake_yarn() as yarn, ResourceManager((yarn.url,)) as manager:
            yarn.hangs = True
            with pytest.raises(YarnError, match="no answer in time"):
                await manager.nodes()

    asyncio.run(story())


def test_an_answer_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yarn_client, "_MOST_BYTES", 1000)
    with pytest.raises(YarnError, match="more than 1000 bytes"):
        asyncio.run(_nodes(b" " * 1001))


def test_a_token_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "token"

    async def story() -> None:
        async with (
            fake_yarn() as yarn,
            ResourceManager((yarn.url,), Access(token_file=str(path))) as manager,
        ):
            with pytest.raises(YarnError, match="token file"):
                await manager.nodes()
            for text in ("one\n", "two\n"):
                path.write_text(text)
                await manager.nodes()
            assert yarn.tokens == {"Bearer one", "Bearer two"}
            for text in ("", "a\nb", "\x00"):
                path.write_text(text)
                with pytest.raises(YarnError, match="holds no token"):
                    await manager.nodes()

    asyncio.run(story())


def test_a_ca_file_that_is_none(tmp_path: Path) -> None:
    async def story(path: Path) -> None:
        async with ResourceManager(("https://a",), Access(ca_file=str(path))):
            pass

    (tmp_path / "bad").write_text("no certificate")
    for name in ("missing", "bad"):
        with pytest.raises(YarnError, match=name):
            asyncio.run(story(tmp_path / name))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], {}),
        (["http://rm:8088"], {"": ("http://rm:8088",)}),
        (["http://rm:8088/"], {"": ("http://rm:8088",)}),
        (["https://[::1]:8090,https://b"], {"": ("https://[::1]:8090", "https://b")}),
        (["a=http://rm:1", "b=http://rm:2"], {"a": ("http://rm:1",), "b": ("http://rm:2",)}),
    ],
)
def test_managers(texts: list[str], expected: dict[str, tuple[str, ...]]) -> None:
    assert parse_managers(texts) == expected


@pytest.mark.parametrize(
    "texts",
    [
        [""],
        ["rm:8088"],
        ["a="],
        ["ftp://rm"],
        ["http://"],
        ["http://rm/ws/v1"],
        ["http://rm?user=a"],
        ["http://u:p@rm"],
        ["http://a", "http://b"],
        ["a=http://a", "a=http://b"],
    ],
)
def test_managers_that_are_none(texts: list[str]) -> None:
    with pytest.raises(ValueError, match=r"http://HOST:8088|named twice"):
        parse_managers(texts)
