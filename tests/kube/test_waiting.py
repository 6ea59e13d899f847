"""Who waits how long, and who goes first."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from koordlet.kube.backoff import Backoff
from koordlet.kube.budget import Priority, RequestBudget
from koordlet.kube.lines import Lines


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=50))
def test_waits_double_up_to_a_bound(draws: list[float]) -> None:
    rest = iter(draws)
    backoff = Backoff(lambda: next(rest), first_s=0.1, most_s=5.0)
    for number in range(len(draws)):
        whole = min(5.0, 0.1 * 2**number)
        assert whole / 2 <= backoff.next_s() <= whole


def test_urgent_requests_go_first() -> None:
    async def run() -> None:
        budget = RequestBudget(200.0, 1, asyncio.get_running_loop().time)
        await budget.take(Priority.READ)
        order: list[Priority] = []

        async def one(priority: Priority) -> None:
            await budget.take(priority)
            order.append(priority)

        wanted = [Priority.EVENT, Priority.STATUS, Priority.BIND, Priority.EVENT, Priority.EVICT]
        tasks = [asyncio.create_task(one(each)) for each in wanted]
        await asyncio.sleep(0)
        given_up = asyncio.create_task(one(Priority.BIND))
        await asyncio.sleep(0)
        given_up.cancel()
        await budget.take(Priority.LEASE)
        assert not order
        await asyncio.gather(*tasks)
        assert order == sorted(wanted)

    asyncio.run(run())


@given(st.lists(st.binary(max_size=20)), st.lists(st.integers(1, 7), max_size=80))
def test_lines_do_not_depend_on_the_pieces(lines: list[bytes], sizes: list[int]) -> None:
    whole = [line.replace(b"\n", b"") for line in lines]
    data = b"".join(line + b"\n" for line in whole)
    found: list[bytes] = []
    taken = Lines()
    for size in [*sizes, len(data) + 1]:
        piece, data = data[:size], data[size:]
        found += taken.take(piece)
    assert not taken.rest
    assert found == [line for line in whole if line]
