"""The queue: order, back-off, events that help, gates, and what happens during an attempt."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from koord_scheduler.plan.accounts import MOST_REST_S, Accounts
from koord_scheduler.plan.hints import Event, helps
from koord_scheduler.plan.queue import FLUSH_S, Queue, State, Unit, backoff_s

FIT = frozenset({"NodeResourcesFit"})


def names(queue: Queue, now_s: float) -> list[str]:
    found = []
    while (unit := queue.pop(now_s)) is not None:
        found.append(unit.name)
        queue.remove(unit.name)
    return found


def test_priority_goes_first_then_age_then_name() -> None:
    queue = Queue()
    units = [Unit("c", 5, 2.0), Unit("b", 5, 1.0), Unit("a", 5, 1.0), Unit("d", 9, 9.0), Unit("e")]
    random.Random(1).shuffle(units)
    for unit in units:
        queue.put(unit, 0.0)
    assert names(queue, 0.0) == ["d", "a", "b", "c", "e"]
    assert len(queue) == 0


@pytest.mark.parametrize(
    ("attempts", "expected"), [(0, 0), (1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (99, 10)]
)
def test_back_off_doubles_to_ten_seconds(attempts: int, expected: float) -> None:
    assert backoff_s(attempts) == expected


def test_a_unit_waits_for_what_can_help_it_and_for_its_back_off() -> None:
    queue = Queue()
    queue.put(Unit("p"), 0.0)
    for attempt in range(1, 4):
        assert queue.pop(100.0 * attempt) is not None
        queue.failed("p", 100.0 * attempt, FIT)
        assert queue.event(Event.LOAD, 100.0 * attempt) == 0
        assert queue.pop(100.0 * attempt + 50) is None
        assert queue.event(Event.POD_GONE, 100.0 * attempt + 0.5) == 1
        position = queue.position("p")
        assert position is not None
        assert position.state is State.BACKOFF
        assert position.until_s == 100.0 * attempt + 2 ** (attempt - 1)
        assert queue.next_s() is not None
        assert queue.pop(position.until_s - 0.01) is None
        queue.flush(position.until_s)
        position = queue.position("p")
        assert position is not None
        assert (position.state, position.ahead, position.attempts) == (State.ACTIVE, 0, attempt)


def test_what_nothing_helps_is_tried_again_after_five_minutes() -> None:
    queue = Queue()
    queue.put(Unit("p"), 0.0)
    queue.pop(0.0)
    queue.failed("p", 0.0, FIT)
    assert queue.pop(FLUSH_S - 1) is None
    assert queue.pop(FLUSH_S) is not None


def test_an_event_during_the_attempt_is_not_lost() -> None:
    queue = Queue()
    queue.put(Unit("p"), 0.0)
    queue.put(Unit("q"), 0.0)
    queue.event(Event.POD_GONE, 0.0)  # before the attempt: it saw that
    assert queue.pop(0.0) is not None
    queue.failed("p", 0.0, FIT)
    assert queue.pop(0.0) is not None
    queue.event(Event.POD_GONE, 0.0, lambda unit, by: False)
    queue.failed("q", 0.0, FIT)
    states = [position.state for name in "pq" if (position := queue.position(name)) is not None]
    assert states == [State.WAITING, State.BACKOFF]


def test_a_closer_look_decides_whom_an_event_helps() -> None:
    queue = Queue()
    for name in "ab":
        queue.put(Unit(name), 0.0)
    for name in "ab":
        queue.pop(0.0)
        queue.failed(name, 0.0, FIT)
    assert queue.event(Event.NODE, 60.0, lambda unit, by: unit.name == "b") == 1
    assert names(queue, 60.0) == ["b"]


def test_gates_hold_a_unit_until_they_open() -> None:
    queue = Queue()
    queue.put(Unit("g", gate="gang g has 1 of 3 members"), 0.0)
    assert queue.pop(0.0) is None
    position = queue.position("g")
    assert position is not None
    assert position.waits_for == ("gang g has 1 of 3 members",)
    queue.put(Unit("g"), 1.0)
    assert queue.pop(1.0) is not None
    queue.put(Unit("g", gate="a member went away"), 2.0)
    queue.failed("g", 2.0, FIT)
    assert queue.counts()[State.GATED] == 1
    assert queue.event(Event.POD_GONE, 3.0) == 0
    queue.remove("g")
    assert "g" not in queue


def test_a_changed_priority_counts_at_once() -> None:
    queue = Queue()
    queue.put(Unit("a", 1), 0.0)
    queue.put(Unit("b", 2), 0.0)
    queue.put(Unit("a", 3), 0.0)
    assert names(queue, 0.0) == ["a", "b"]


def test_a_conflict_is_tried_again_without_an_event() -> None:
    queue = Queue()
    queue.put(Unit("a"), 0.0)
    queue.pop(0.0)
    queue.again("a", 0.0)
    assert queue.pop(0.5) is None
    assert queue.pop(1.0) is not None


@pytest.mark.parametrize(
    ("event", "plugins", "expected"),
    [
        (Event.NODE_LABELS, {"NodeAffinity"}, True),
        (Event.POD_GONE, {"NodeAffinity"}, False),
        (Event.POD_GONE, {"NodeAffinity", "NodeResourcesFit"}, True),
        (Event.QUOTA, {"ElasticQuota"}, True),
        (Event.LOAD, {"ElasticQuota"}, False),
        (Event.LOAD, {"LoadAwareScheduling"}, True),
        (Event.DEVICES, {"DeviceShare"}, True),
        (Event.LOAD, {"SomebodyElses"}, True),
        (Event.NODE, set(), False),
    ],
)
def test_hints(event: Event, plugins: set[str], expected: bool) -> None:
    assert helps(event, plugins) is expected


def test_no_unit_is_lost_or_told_twice_in_a_random_history() -> None:
    chance = random.Random(3)
    queue, now_s = Queue(), 0.0
    waiting: dict[str, Unit] = {}
    tried: set[str] = set()
    for step in range(5000):
        now_s += chance.random()
        do = chance.randrange(7)
        if do == 0:
            unit = Unit(f"u{chance.randrange(40)}", chance.randrange(3), float(step))
            queue.put(unit, now_s)
            waiting[unit.name] = unit
        elif do == 1 and waiting:
            name = chance.choice(sorted(waiting))
            queue.remove(name)
            del waiting[name]
            tried.discard(name)
        elif do == 2:
            queue.event(chance.choice(list(Event)), now_s)
        elif do == 3 and tried:
            name = tried.pop()
            queue.failed(name, now_s, FIT)
        elif (popped := queue.pop(now_s)) is not None:
            assert popped == waiting[popped.name]
            assert popped.name not in tried
            tried.add(popped.name)
        assert set(queue.names()) == set(waiting)
        assert queue.counts()[State.TRIED] == len(tried)
    for name in tried:
        queue.failed(name, now_s, FIT)
    assert sorted(names(queue, now_s + FLUSH_S)) == sorted(waiting)


def test_all_positions_are_those_of_each() -> None:
    queue = Queue()
    for name, priority in (("a", 1), ("b", 9), ("c", 5), ("d", 5)):
        queue.put(Unit(name, priority), 0.0)
    tried = queue.pop(0.0)
    assert tried is not None and tried.name == "b"
    found = queue.positions(3)
    assert found == {name: queue.position(name) for name in ("a", "b", "c")}
    assert queue.positions(9)["a"].ahead == 2


# Turns by CPU seconds.


class Cpu:
    """Seconds that somebody else spends."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Player:
    """Decides for all that is active; each attempt of a namespace takes ``costs_s`` of it, and
    leads to nothing but for those of ``placed``."""

    def __init__(self, costs_s: dict[str, float], placed: str = "") -> None:
        self.cpu, self.costs_s, self.placed = Cpu(), costs_s, placed
        self.queue = Queue(Accounts(self.cpu))
        self.spent_s = dict.fromkeys(costs_s, 0.0)

    def step(self, now_s: float) -> str:
        unit = self.queue.pop(now_s)
        if unit is None:
            return ""
        self.cpu.now_s += self.costs_s[unit.space]
        self.spent_s[unit.space] += self.costs_s[unit.space]
        if unit.space == self.placed:
            self.queue.remove(unit.name)
        else:
            self.queue.failed(unit.name, now_s, FIT)
        self.queue.decided(now_s)
        return unit.name


def of(space: str, number: int, priority: int = 0, created_s: float = 0.0) -> Unit:
    key = f"{space}/{number}"
    return Unit(key, priority, created_s, (key,))


def test_equals_take_turns_by_the_cpu_that_they_took_not_by_their_number() -> None:
    player = Player({"dear": 0.02, "cheap": 0.001}, placed="cheap")
    for i in range(200):
        player.queue.put(of("dear", i, created_s=i), 0.0)
        player.queue.put(of("cheap", i, created_s=1000 + i), 0.0)
    order = [player.step(0.0) for _ in range(100)]
    assert sum(name.startswith("cheap") for name in order) > 80
    assert order.index("cheap/0") <= 3  # after a quantum of those that are older
    assert abs(player.spent_s["dear"] - player.spent_s["cheap"]) < 0.1


def test_without_a_clock_of_cpu_age_alone_decides() -> None:
    queue = Queue()
    for i in range(50):
        queue.put(of("abc"[i % 3], i, created_s=i), 0.0)
    assert names(queue, 0.0) == [f"{'abc'[i % 3]}/{i}" for i in range(50)]


def test_a_namespace_of_high_priority_lets_others_go_first_when_it_took_too_much() -> None:
    """Priority decides until its pods that find no place have taken their share."""
    player = Player({"high": 0.02, "low": 0.001}, placed="low")
    for i in range(400):
        player.queue.put(of("high", i, priority=1000), 0.0)
    for i in range(20):
        player.queue.put(of("low", i), 0.0)
    order = [player.step(0.0) for _ in range(60)]
    first = order.index("low/0")
    assert 0.1 < first * 0.02 < 0.4  # seconds
    assert order[first : first + 20] == [f"low/{i}" for i in sorted(range(20), key=str)]
    position = player.queue.position("high/399")
    assert position is not None
    player.queue.put(of("low", 99), 0.0)
    assert player.step(0.0) == "low/99"


def test_what_leads_to_nothing_takes_a_small_share_of_the_time_in_the_long_run() -> None:
    player = Player({"evil": 0.02, "good": 0.001}, placed="good")
    for i in range(50):
        player.queue.put(of("evil", i, priority=1000), 0.0)
    for tick in range(6_000):
        now_s = tick / 10
        player.queue.event(Event.POD_GONE, now_s)
        if tick % 2:
            player.queue.put(of("good", tick), now_s)
        while player.step(now_s):
            pass
    assert player.spent_s["good"] == pytest.approx(3.0)  # all of them had their turn
    assert player.spent_s["evil"] < 1.5 + 600 * 0.02


def test_a_dear_attempt_rests_in_proportion() -> None:
    player = Player({"evil": 0.3})
    player.queue.put(of("evil", 0), 0.0)
    player.step(0.0)
    player.queue.event(Event.POD_GONE, 0.0)
    position = player.queue.position("evil/0")
    assert position is not None
    assert (position.state, round(position.until_s)) == (State.BACKOFF, 30)


def test_looks_are_paid_for_and_alike_units_are_looked_at_once() -> None:
    player, asked = Player({"evil": 0.0, "good": 0.0}), list[str]()

    def look(unit: Unit, refused_by: frozenset[str]) -> bool:
        asked.append(unit.space)
        player.cpu.now_s += 0.06 if unit.space == "evil" else 0.0
        return False

    for i in range(10):
        for space in ("evil", "good"):
            key = f"{space}/{i}"
            player.queue.put(Unit(key, pods=(key,), like=7 if space == "good" else i + 10), 0.0)
    while player.step(0.0):
        pass
    woken = player.queue.event(Event.POD_GONE, 20.0, look)
    assert asked.count("good") == 1
    assert asked.count("evil") == 2 and woken == 8  # those it may not look at wait for their turn
    player.queue.flush(20.0)
    assert player.step(20.0) == ""


def test_who_was_denied_is_tried_again_in_time_and_sooner_where_an_event_helps() -> None:
    for helps_at_s, tried_at_s in ((None, 7.0), (3.0, 3.0)):
        player = Player({"a": 0.0})
        player.queue.put(of("a", 0), 0.0)
        assert player.queue.pop(0.0) is not None
        player.queue.failed("a/0", 0.0, FIT, 7.0)
        assert player.queue.pop(tried_at_s - 0.1) is None
        if helps_at_s is not None:
            player.queue.event(Event.POD_GONE, helps_at_s)
        assert player.queue.pop(tried_at_s) is not None


def test_those_that_may_not_look_for_victims_come_back_one_after_the_other() -> None:
    """Also when one of them may look meanwhile: else all would come back at each of its looks."""
    accounts = Accounts()
    account, now_s, back_s = accounts.of("a"), 100.0, list[float]()
    accounts.looked_for_victims("a", 0.1, now_s, found=False)
    for _ in range(10):
        accounts.looked_for_victims("a", 0.015, now_s, found=False)
        back_s += [account.denied_s(now_s + 0.01) for _ in range(10)]
        now_s = account.evictions.free_s(now_s)
        assert account.denied_s(now_s) == 0.0
    assert all(b - a >= 0.5 or b - now_s > MOST_REST_S / 2 for a, b in pairwise(back_s))
    assert max(back_s) <= now_s + MOST_REST_S
