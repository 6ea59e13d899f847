"""Keys come once, one worker has a key at a time, failures come later each time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable

import pytest
import structlog

from koord_scheduler.kube.queue import Queue
from koordlet.kube.errors import NoAnswerError, RefusedError
from tests.kube.worlds import until


@contextlib.asynccontextmanager
async def running(queue: Queue):  # type: ignore[no-untyped-def]
    task = asyncio.create_task(queue.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, BaseExceptionGroup):
            await task


def _counting(seen: list[str]) -> Callable[[str], Awaitable[float | None]]:
    async def work(key: str) -> float | None:
        seen.append(key)
        return None

    return work


def test_a_key_that_waits_comes_once() -> None:
    async def story() -> None:
        seen: list[str] = []
        queue = Queue(_counting(seen))
        queue.add_all(["a", "b", "a"])
        queue.add_after("a", 3600)
        assert len(queue) == 2
        async with running(queue):
            await until(lambda: len(seen) == 2)
            await asyncio.sleep(0.01)
            assert seen == ["a", "b"]

    asyncio.run(story())


def test_one_worker_has_a_key_and_what_comes_meanwhile_comes_again() -> None:
    async def story() -> None:
        at_once = most = 0
        runs = 0
        go = asyncio.Event()

        async def work(key: str) -> float | None:
            nonlocal at_once, most, runs
            at_once += 1
            most, runs = max(most, at_once), runs + 1
            await go.wait()
            at_once -= 1
            return None

        queue = Queue(work, workers=4)
        queue.add("a")
        async with running(queue):
            await until(lambda: runs == 1)
            queue.add("a")
            queue.add("a")
            await asyncio.sleep(0.01)
            assert runs == 1
            go.set()
            await until(lambda: runs == 2)
            assert most == 1

    asyncio.run(story())


def test_work_may_ask_to_be_done_again() -> None:
    async def story() -> None:
        seen: list[str] = []

        async def work(key: str) -> float | None:
            seen.append(key)
            return 0.01 if len(seen) < 3 else None

        queue = Queue(work)
        queue.add("a")
        async with running(queue):
            await until(lambda: len(seen) == 3)
            await asyncio.sleep(0.05)
            assert len(seen) == 3

    asyncio.run(story())


def test_the_earlier_of_two_times_counts() -> None:
    async def story() -> None:
        seen: list[str] = []
        queue = Queue(_counting(seen))
        async with running(queue):
            queue.add_after("a", 0.02)
            queue.add_after("a", 3600)
            queue.add_after("b", 3600)
            queue.add_after("b", 0.02)
            await until(lambda: sorted(seen) == ["a", "b"])

    asyncio.run(story())


def test_what_is_gone_does_not_come() -> None:
    async def story() -> None:
        seen: list[str] = []
        queue = Queue(_counting(seen))
        queue.add("a")
        queue.add_after("b", 0.01)
        queue.drop("a")
        queue.drop("b")
        queue.add("c")
        async with running(queue):
            await until(lambda: "c" in seen)
            await asyncio.sleep(0.05)
            assert seen == ["c"]

    asyncio.run(story())


def test_a_failure_comes_again_later_each_time() -> None:
    async def story() -> None:
        times: list[float] = []
        heard: list[str] = []

        async def work(key: str) -> float | None:
            times.append(asyncio.get_running_loop().time())
            if len(times) < 4:
                raise NoAnswerError("no answer")
            return None

        queue = Queue(work, on_error=lambda key, error: heard.append(key), draw=lambda: 0.999)
        queue.add("a")
        async with running(queue):
            await until(lambda: len(times) == 4)
            assert heard == ["a"] * 3
            waits = [b - a for a, b in itertools.pairwise(times)]
            assert waits[0] >= 0.09 and waits[1] >= 0.19 and waits[2] >= 0.39

    asyncio.run(story())


def test_the_server_says_how_long_to_wait() -> None:
    async def story() -> None:
        times: list[float] = []

        async def work(key: str) -> float | None:
            times.append(asyncio.get_running_loop().time())
            if len(times) == 1:
                raise RefusedError("busy", 429, "TooManyRequests", retry_after_s=0.5)
            return None

        queue = Queue(work, draw=lambda: 0.0)
        queue.add("a")
        async with running(queue):
            await until(lambda: len(times) == 2)
            assert times[1] - times[0] >= 0.49

    asyncio.run(story())


def test_a_defect_costs_its_own_key_and_is_told() -> None:
    async def story() -> None:
        seen: list[str] = []
        heard: list[tuple[str, Exception]] = []

        async def work(key: str) -> float | None:
            if key == "bad":
                raise ZeroDivisionError
            seen.append(key)
            return None

        queue = Queue(work, workers=1, on_error=lambda key, error: heard.append((key, error)))
        queue.add_all(["bad", "good"])
        with structlog.testing.capture_logs() as lines:
            async with running(queue):
                await until(lambda: seen == ["good"])
        assert [(key, type(error)) for key, error in heard] == [("bad", ZeroDivisionError)]
        assert [(each["log_level"], each["key"]) for each in lines] == [("error", "bad")]

    asyncio.run(story())


def test_what_no_object_can_cause_ends_it() -> None:
    async def story() -> None:
        async def work(key: str) -> float | None:
            raise RuntimeError("a defect")

        queue = Queue(work)
        queue.add("a")
        with pytest.raises(BaseExceptionGroup) as raised:
            await queue.run()
        assert raised.group_contains(RuntimeError)

    asyncio.run(story())


def test_other_errors_as_the_owner_says() -> None:
    async def story() -> None:
        seen: list[str] = []

        async def work(key: str) -> float | None:
            seen.append(key)
            if len(seen) == 1:
                raise LookupError
            return None

        queue = Queue(work, retry=lambda error: 0.01 if isinstance(error, LookupError) else None)
        queue.add("a")
        async with running(queue):
            await until(lambda: len(seen) == 2)

    asyncio.run(story())
