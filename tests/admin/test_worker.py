"""The thread behind the local API: where it works, in which order, and how it ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from koordlet.admin.worker import Worker, in_turns
from koordlet.kernel.background import Pause


def test_work_is_done_in_one_other_thread_in_order() -> None:
    worker, seen = Worker(), []

    def work(number: int) -> tuple[int, int]:
        seen.append(number)
        return number, threading.get_ident()

    async def ask() -> list[tuple[int, int]]:
        asked = (worker.run(lambda pause, n=number: work(n)) for number in range(5))
        return await asyncio.gather(*asked)

    answers = asyncio.run(ask())
    worker.close()
    assert [number for number, _ in answers] == seen == [0, 1, 2, 3, 4]
    (thread,) = {thread for _, thread in answers}
    assert thread != threading.get_ident()


def test_long_work_takes_turns_with_others() -> None:
    worker, seen = Worker(), []

    def items(pause: Pause) -> Iterator[int]:
        for number in range(3):
            pause()
            seen.append(f"item {number}")
            yield number

    async def ask() -> list[int]:
        found = []
        async for number in in_turns(worker, items):
            found.append(number)
            await worker.run(lambda pause: seen.append("somebody else"))
        return found

    assert asyncio.run(ask()) == [0, 1, 2]
    worker.close()
    assert seen == [line for n in range(3) for line in (f"item {n}", "somebody else")]


def test_what_callers_cost_is_known_apart() -> None:
    worker = Worker()

    def work(pause: Pause) -> None:
        until_s = time.thread_time() + 0.02
        while time.thread_time() < until_s:
            pause()

    assert worker.cpu_s == 0.0
    before_s = time.process_time()
    asyncio.run(worker.run(work))
    asyncio.run(worker.run(work, quick=True))
    assert 0.04 <= worker.cpu_s <= time.process_time() - before_s
    worker.close()


def test_the_loop_goes_on_meanwhile() -> None:
    worker, go_on = Worker(), threading.Event()

    def work(pause: Pause) -> bool:
        pause()
        return go_on.wait(60)

    async def ask() -> bool:
        answer = asyncio.create_task(worker.run(work))
        await asyncio.sleep(0)
        go_on.set()  # only the loop can
        return await answer

    assert asyncio.run(ask())
    worker.close()


def test_what_is_raised_reaches_the_caller() -> None:
    worker = Worker()

    def work(pause: Pause) -> None:
        raise LookupError("nobody")

    with pytest.raises(LookupError, match="nobody"):
        asyncio.run(worker.run(work))
    worker.close()


@pytest.mark.parametrize("how", ["the caller hangs up", "the daemon stops"])
def test_work_for_nobody_ends_at_its_next_pause(how: str) -> None:
    worker, begun, over = Worker(), threading.Event(), threading.Event()
    abandoned = threading.Event()

    def work(pause: Pause) -> None:
        begun.set()
        abandoned.wait(60)
        try:
            while True:
                pause()
        finally:
            over.set()

    async def ask() -> None:
        answer = asyncio.create_task(worker.run(work))
        await asyncio.to_thread(begun.wait, 60)
        if how == "the daemon stops":
            worker.close()
        else:
            answer.cancel()
        await asyncio.sleep(0)
        abandoned.set()
        with pytest.raises(asyncio.CancelledError):
            await answer

    asyncio.run(ask())
    worker.close()
    assert over.wait(60)


def test_what_is_quick_does_not_wait_for_a_search() -> None:
    worker, answered = Worker(), threading.Event()

    async def ask() -> None:
        search = asyncio.create_task(worker.run(lambda pause: answered.wait(60)))
        await worker.run(lambda pause: answered.set(), quick=True)
        assert await search

    asyncio.run(ask())
    worker.close()


def test_work_that_comes_after_the_end_is_cancelled() -> None:
    worker = Worker()
    worker.close()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(worker.run(lambda pause: 1))
