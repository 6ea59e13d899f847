"""Pairs that the strategy ``interference`` reported, as the decision log has them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from koordlet.admin.blame import culprit_title
from koordlet.decision.names import shown
from koordlet.decision.record import Kind, Record
from koordlet.diagnosis.who import Key, Who
from koordlet.qos.interference.by_cpi import RESOURCE as CPI
from koordlet.qos.interference.strategy import STRATEGY

__all__ = ["CPI", "Verdict", "is_verdict", "verdicts"]

_REST = "rest"
_INPUTS = frozenset({"blame", "correlation"})


class Verdict(NamedTuple):
    """``victim`` and ``culprit``: as heat maps name them. ``share``: of the victim's demand, with
    resource ``cpi`` the correlation; as it was when the pair was reported."""

    resource: str
    victim: str
    culprit: str
    share: float


def is_verdict(record: Record) -> bool:
    return record.owner == STRATEGY.name and record.kind is Kind.NOTE


def share_of(record: Record) -> float:
    """0 where it does not tell."""
    for each in record.why.inputs:
        if each.name in _INPUTS and isinstance(each.value, int | float):
            return float(each.value)
    return 0.0


def verdicts(shares: Mapping[str, float], names: Mapping[Key, Who]) -> Iterator[Verdict]:
    """``shares``: by rule, which names resource, victim and culprit. Whose own doing it is, or that
    of the system, is no antagonist's; who is not known any more is left out."""
    titles = {shown(name): who.title for (_, name), who in names.items()}
    for rule, share in shares.items():
        _, _, rest = rule.partition(".")
        resource, _, pair = rest.partition(".")
        found = _pair(pair, titles)
        if found is not None:
            yield Verdict(resource, *found, share)


def _pair(pair: str, titles: Mapping[str, str]) -> tuple[str, str] | None:
    """Names of applications may have dots."""
    known = {**titles, _REST: culprit_title(_REST, "")}
    dots = (at for at, letter in enumerate(pair) if letter == ".")
    for at in dots:
        victim, culprit = pair[:at], pair[at + 1 :]
        if victim in titles and culprit in known:
            return titles[victim], known[culprit]
    return None
