"""One part that raises is a problem with a name until it works again."""

from __future__ import annotations

import asyncio

from koordlet.daemon.guard import Guard


def test_a_part_that_raises_and_then_works() -> None:
    problems: dict[str, str] = {}
    guard = Guard(problems)
    assert not guard.run("part", lambda: 1 / 0)
    assert problems == {"part": "ZeroDivisionError: division by zero"}
    assert guard.run("other", lambda: None)
    assert set(problems) == {"part"}
    assert guard.run("part", lambda: None)
    assert problems == {}


def test_the_same_for_what_is_awaited() -> None:
    problems: dict[str, str] = {}
    guard = Guard(problems)

    async def bad() -> None:
        await asyncio.sleep(0)
        raise OSError(5, "Input/output error", "/x")

    async def good() -> None:
        await asyncio.sleep(0)

    assert not asyncio.run(guard.run_async("part", bad))
    assert problems == {"part": "OSError: [Errno 5] Input/output error: '/x'"}
    assert asyncio.run(guard.run_async("part", good))
    assert problems == {}


def test_a_cancelled_part_is_no_failure() -> None:
    problems: dict[str, str] = {}
    guard = Guard(problems)

    async def main() -> None:
        task = asyncio.create_task(guard.run_async("part", lambda: asyncio.sleep(60)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(main())
    assert problems == {}
