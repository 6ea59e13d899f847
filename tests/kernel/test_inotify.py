"""Watches on a real directory, with an event loop that the test turns by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from koordlet.kernel.inotify import WRITES_REST_S, Inotify


class Loop:
    """``readers``: what waits for input. ``later``: what is to be called, and after which time."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}
        self.later: list[tuple[float, Callable[[], None]]] = []

    def add_reader(self, descriptor: int, call: Callable[[], None]) -> None:
        self.readers[descriptor] = call

    def remove_reader(self, descriptor: int) -> None:
        self.readers.pop(descriptor, None)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.later.append((delay_s, call))

    def turn(self) -> None:
        for call in tuple(self.readers.values()):
            call()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def seen() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def writes(loop: Loop, seen: list[tuple[str, str]], tmp_path: Path) -> Iterator[Inotify]:
    every = cast("asyncio.AbstractEventLoop", loop)
    made = Inotify(every, lambda *event: seen.append(event), writes=True)
    (tmp_path / "cpu.max").write_text("max")
    made.add(str(tmp_path))
    yield made
    made.close()


def test_writes_are_read_now_and_then(
    writes: Inotify, loop: Loop, seen: list[tuple[str, str]], tmp_path: Path
) -> None:
    """Whoever may write such a file may do so as often as he likes."""
    file = tmp_path / "cpu.max"
    file.write_text("1")
    loop.turn()
    assert set(seen) == {(str(tmp_path), "cpu.max")} and not loop.readers
    seen.clear()
    for number in range(50):
        file.write_text(str(number))
        loop.turn()
    ((delay_s, go_on),) = loop.later
    assert not seen and delay_s == WRITES_REST_S
    go_on()
    loop.turn()
    assert len(seen) < 50 and set(seen) == {(str(tmp_path), "cpu.max")}


def test_a_watch_that_was_closed_meanwhile_reads_no_more(
    writes: Inotify, loop: Loop, tmp_path: Path
) -> None:
    (tmp_path / "cpu.max").write_text("1")
    loop.turn()
    writes.close()
    loop.later[0][1]()
    assert not loop.readers


def test_what_comes_and_goes_is_no_write(
    writes: Inotify, loop: Loop, seen: list[tuple[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub").rmdir()
    (tmp_path / "cpu.max").read_text()
    loop.turn()
    assert not seen
    writes.remove(str(tmp_path))
    (tmp_path / "cpu.max").write_text("1")
    loop.turn()
    assert not seen
