"""How long a hook server is left alone."""

from __future__ import annotations

from koordlet.runtimeproxy.servers.breaker import MAX_BACK_OFF_S, Breaker


def test_one_probe_at_a_time_and_longer_pauses() -> None:
    breaker, now, pauses = Breaker(), 100.0, []
    for _ in range(9):
        assert breaker.admits(now)
        breaker.failed(now, "hangs", at_once=False)
        assert not breaker.admits(now)
        pauses.append(breaker.until_s - now)
        now = breaker.until_s
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, MAX_BACK_OFF_S]
    assert breaker.admits(now)
    assert not breaker.admits(now)  # the probe is under way
    breaker.gave_up()
    assert breaker.admits(now)
    breaker.succeeded()
    assert breaker.admits(now) and breaker.admits(now)
    breaker.failed(now, "hangs again", at_once=False)
    assert breaker.until_s - now == 1


def test_what_fails_at_once_is_asked_again_soon() -> None:
    breaker, now = Breaker(), 0.0
    for _ in range(5):
        assert breaker.admits(now)
        breaker.failed(now, "nobody listens", at_once=True)
        assert breaker.until_s - now == 1
        now = breaker.until_s
