"""A socket that comes, goes and comes anew, noticed by inotify and, without it, by looking."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Coroutine
from pathlib import Path

import pytest

from koordlet.kernel import socket_watch
from koordlet.kernel.socket_watch import SocketWatch, identity


@pytest.fixture(params=["inotify", "looks"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the socket will be. By inotify alone, or by looks alone."""
    if request.param == "inotify":
        monkeypatch.setattr(socket_watch, "WATCHED_LOOK_S", 3600.0)
    else:

        def none_left(*_: object, **__: object) -> None:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(socket_watch, "Inotify", none_left)
        monkeypatch.setattr(socket_watch, "UNWATCHED_LOOK_S", 0.01)
    return tmp_path / "run" / "nri" / "nri.sock"


def run(test: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


async def _next(watch: SocketWatch, known: tuple[int, int] | None) -> asyncio.Task[object]:
    waiting = asyncio.create_task(watch.wait(known))
    for _ in range(5):
        await asyncio.sleep(0.01)
    assert not waiting.done()
    return waiting  # type: ignore[return-value]


def test_it_comes_with_its_directories(path: Path) -> None:
    async def test() -> None:
        watch = SocketWatch(str(path))
        waiting = await _next(watch, None)
        path.parent.mkdir(parents=True)
        (path.parent / "another").touch()
        await asyncio.sleep(0.05)
        assert not waiting.done()
        path.touch()
        assert await waiting == identity(str(path))
        watch.close()

    run(test())


@pytest.mark.parametrize("how", ["removed", "renamed over", "directory", "all"])
def test_it_is_made_anew(path: Path, how: str) -> None:
    async def test() -> None:
        path.parent.mkdir(parents=True)
        path.touch()
        known = identity(str(path))
        watch = SocketWatch(str(path))
        assert await watch.wait(None) == known
        waiting = await _next(watch, known)
        if how == "renamed over":
            fresh = path.with_suffix(".new")
            fresh.touch()
            os.rename(fresh, path)
        elif how == "removed":
            path.unlink()
            await asyncio.sleep(0.05)
            assert not waiting.done(), "one that has gone is none to connect to"
            path.touch()
        else:
            shutil.rmtree(path.parent if how == "directory" else path.parent.parent)
            await asyncio.sleep(0.05)
            path.parent.mkdir(parents=True)
            await asyncio.sleep(0.05)
            path.touch()
        assert await waiting == identity(str(path)) != known
        watch.close()

    run(test())


def test_a_limit_of_time(path: Path) -> None:
    async def test() -> None:
        watch = SocketWatch(str(path))
        assert await watch.wait(None, 0.05) is None
        path.parent.mkdir(parents=True)
        path.touch()
        assert await watch.wait(None, 0) == identity(str(path))
        assert await watch.wait(identity(str(path)), 0.05) is None
        watch.close()
        watch.close()

    run(test())


def test_while_nothing_happens_nothing_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    monkeypatch.setattr(socket_watch, "identity", lambda path: looks.append(path))

    async def test() -> None:
        watch = SocketWatch(str(tmp_path / "nri.sock"))
        waiting = asyncio.create_task(watch.wait(None))
        for number in range(50):  # others in the same directory
            (tmp_path / str(number)).touch()
            await asyncio.sleep(0.002)
        waiting.cancel()
        watch.close()
        assert len(looks) == 1

    run(test())
