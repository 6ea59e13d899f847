"""When to leave a hook server alone: what hangs costs its time budget once, not once a pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST_BACK_OFF_S: Final = 1.0
MAX_BACK_OFF_S: Final = 60.0


@dataclass
class Breaker:
    """Closed: everybody may call. Open: nobody until ``until_s``, then one call, the probe; it
    closes the breaker or opens it for longer."""

    until_s: float = 0.0
    error: str = ""
    """Why it is open; empty when closed."""
    _back_off_s: float = FIRST_BACK_OFF_S
    _probing: bool = False

    def admits(self, now_s: float) -> bool:
        """Whoever is admitted must say ``succeeded``, ``failed`` or ``gave_up`` afterwards."""
        if not self.error:
            return True
        if self._probing or now_s < self.until_s:
            return False
        self._probing = True
        return True

    def succeeded(self) -> None:
        self.error, self._probing, self._back_off_s = "", False, FIRST_BACK_OFF_S

    def failed(self, now_s: float, error: str, *, at_once: bool) -> None:
        """``at_once``: it cost no time to find out (nobody listens), so asking again soon costs
        none either; of others each probe that fails doubles the time to the next."""
        if self._probing and not at_once:
            self._back_off_s = min(self._back_off_s * 2, MAX_BACK_OFF_S)
        self.error, self._probing = error, False
        self.until_s = now_s + (FIRST_BACK_OFF_S if at_once else self._back_off_s)

    def gave_up(self) -> None:
        """The caller went away before there was an answer."""
        self._probing = False
