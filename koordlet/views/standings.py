"""In which state each strategy is, and since when: `koordlet strategies`, and a metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from koordlet.admin.daemon import Lookup, NotFoundError
from koordlet.admin.strategies import (
    Lack,
    StrategiesView,
    StrategyArgument,
    StrategyRow,
    StrategyState,
)
from koordlet.config.part_tables import table_of
from koordlet.config.show import Shown, show
from koordlet.decision.record import Record, is_done
from koordlet.decision.snapshot import Capability
from koordlet.decision.strategy import Hook
from koordlet.engine.runs import Runs
from koordlet.engine.traffic import PART as TRAFFIC
from koordlet.hooks import HOOKS
from koordlet.kernel.background import Pause, no_pause
from koordlet.protocol.decode import nearest
from koordlet.qos import STRATEGIES
from koordlet.report.decision_search import Extent, explain
from koordlet.views.switches import AnyPart, matches, switched_off

if TYPE_CHECKING:
    from koordlet.config.load import Loaded
    from koordlet.engine.engine import Engine

_EXPLAINED = 20
"""How many records koordlet searches for the last decision of an earlier run."""


PARTS: tuple[AnyPart, ...] = (
    *STRATEGIES.values(),
    *(hook for hook in HOOKS.values() if hook.switches),
)
"""What a user calls a strategy: also those hooks that the NodeSLO switches."""
NAMES = tuple(part.name for part in PARTS)


def parts_of(engine: Engine) -> tuple[AnyPart, ...]:
    """Ours, and those of other packages that run."""
    theirs = (part for part in engine.strategies if part.name not in STRATEGIES)
    return (*PARTS, *theirs)


@dataclass(frozen=True)
class Standing:
    """``since``: unix seconds, None until a tick has seen it."""

    state: StrategyState
    why: str
    remedy: str = ""
    since: float | None = None


class Standings:
    """``follow`` is called at each tick."""

    def __init__(self) -> None:
        self._found: dict[str, Standing] = {}
        self._shown: tuple[Loaded, Mapping[str, Shown]] | None = None
        self._switched_off: dict[str, tuple[str, str]] = {}

    def follow(self, engine: Engine, time: float) -> None:
        for part in parts_of(engine):
            now = self._standing(engine, part)
            before = self._found.get(part.name)
            same = before is not None and before.state is now.state
            since = before.since if before is not None and same else time
            self._found[part.name] = Standing(now.state, now.why, now.remedy, since)

    def states(self) -> Mapping[str, StrategyState]:
        return {name: each.state for name, each in self._found.items()}

    def view(self, engine: Engine, name: str) -> StrategiesView:
        """All, or one at length. Raises NotFoundError."""
        every = parts_of(engine)
        asked = [part for part in every if name in ("", part.name)]
        if not asked:
            likely = nearest(name, (part.name for part in every))
            meant = f'did you mean "{likely}"? ' if likely else ""
            names = ", ".join(part.name for part in every)
            raise NotFoundError(f"{name!r} is no strategy; {meant}there are: {names}")
        owned = [each.owner for each in engine.parts.actuator.owned()]
        return StrategiesView(
            strategies=tuple(
                self._row(engine, part, owned.count(part.name), at_length=bool(name))
                for part in asked
            )
        )

    def _row(self, engine: Engine, part: AnyPart, changed: int, *, at_length: bool) -> StrategyRow:
        name = part.name
        runs = engine.runs.get(name) or Runs(name, "hook" if isinstance(part, Hook) else "strategy")
        found = self._standing(engine, part)
        before = self._found.get(name)
        shown = self._config(engine.loaded)
        return StrategyRow(
            name=name,
            kind=runs.kind,
            about=part.help,
            state=found.state,
            why=found.why,
            remedy=found.remedy,
            since=before.since if before is not None and before.state is found.state else None,
            settings=_settings(engine, name),
            changed=changed,
            runs=runs.count,
            failures=runs.failures,
            last_run=runs.last_run,
            last_decision=engine.parts.events.last_decision(name),
            lacks=tuple(_lacks(engine, part)),
            arguments=tuple(
                StrategyArgument(
                    key=each.key, value=each.value, origin=each.origin, meaning=each.meaning
                )
                for each in shown.values()
                if at_length and matches(part, each.key)
            ),
            notes=tuple(sorted(text for _, text in runs.noted)) if at_length else (),
        )

    def _standing(self, engine: Engine, part: AnyPart) -> Standing:
        """The first that is true."""
        name, runs, parts = part.name, engine.runs.get(part.name), engine.parts
        shown = self._config(engine.loaded)
        if runs is None:
            key = f"{table_of(part)}.enable"
            return Standing(
                StrategyState.OFF, f"{key} is false ({shown[key].origin})", f"set {key} = true"
            )
        if runs.error:
            why = f"{runs.error}; what it had set stays as it is"
            remedy = "this is a defect of koordlet; its log says where"
            return Standing(StrategyState.FAILED, why, remedy)
        if name == TRAFFIC and TRAFFIC in parts.problems:
            remedy = "`koordlet doctor` says what the kernel lacks"
            return Standing(StrategyState.FAILED, parts.problems[TRAFFIC], remedy)
        wants = _settings(engine, name) or name in engine.evictions.owners()
        off_why, off_remedy = self._off(engine, part)
        missing = [each for need in part.needs if (each := _capability(engine, need))]
        if missing and not any(each.supported for each in missing) and (wants or not off_why):
            why = "; ".join(f"{each.feature}: {each.why}" for each in missing)
            remedy = "; ".join(dict.fromkeys(each.remedy for each in missing if each.remedy))
            return Standing(StrategyState.UNSUPPORTED, why, remedy or "another kernel")
        pause = engine.pausing.whole(name)
        if pause is not None and (wants or not off_why):
            why = f"{pause.text}; it would: {runs.result}" if runs.result else pause.text
            return Standing(StrategyState.PAUSED, why, f"`{pause.scope.resume}`")
        if wants:
            if parts.observing:
                remedy = 'set daemon.mode = "enforce"'
                return Standing(StrategyState.OBSERVING, runs.result, remedy)
            return Standing(StrategyState.ACTIVE, runs.result)
        if off_why:
            return Standing(StrategyState.OFF, off_why, off_remedy)
        if name == TRAFFIC and parts.traffic.undivided:
            return Standing(StrategyState.IDLE, parts.traffic.undivided)
        if runs.last_run is None:
            return Standing(StrategyState.WAITING, "the kernel's features are still being probed")
        if runs.waits:
            return Standing(StrategyState.WAITING, runs.result)
        return Standing(StrategyState.IDLE, runs.result)

    def _off(self, engine: Engine, part: AnyPart) -> tuple[str, str]:
        """Why the NodeSLO does not ask for it, and what to do; empty where it does."""
        loaded, known = engine.loaded, self._switched_off
        if part.name not in known:
            values = {each.key: each.value for each in self._config(loaded).values()}
            known[part.name] = switched_off(part, values, loaded.origins, PARTS)
        return known[part.name]

    def _config(self, loaded: Loaded) -> Mapping[str, Shown]:
        """Values in force, by key."""
        if self._shown is None or self._shown[0] is not loaded:
            self._shown = loaded, {each.key: each for each in show(loaded)}
            self._switched_off.clear()
        return self._shown[1]


def _settings(engine: Engine, name: str) -> int:
    """What it wants in force: of cgroups, of devices and groups, and classes of traffic."""
    wanted = engine.pausing.wanted(name)
    traffic = engine.parts.traffic
    plan = traffic.plan if name == TRAFFIC and not traffic.undivided else None
    return wanted + (len(plan.classes) if plan is not None else 0)


def _capability(engine: Engine, feature: str) -> Capability | None:
    """None: not tried yet."""
    parts = engine.parts
    early = parts.capabilities.get(feature)
    if early is not None:
        return early
    found_late = (*parts.traffic.capabilities, *parts.runner.capabilities())
    return next((each for each in found_late if each.feature == feature), None)


def _lacks(engine: Engine, part: AnyPart) -> list[Lack]:
    found = [_capability(engine, each) for each in (*part.needs, *part.uses)]
    return [
        Lack(feature=each.feature, why=each.why, cost=each.cost, remedy=each.remedy)
        for each in found
        if each is not None and not each.supported
    ]


def strategies(engine: Engine, standings: Standings, name: str) -> Lookup[StrategiesView]:
    """All, or one at length, and that one with its last decision of earlier runs where it has
    taken none in this one. Raises NotFoundError."""
    found, log = standings.view(engine, name), engine.parts.decisions.extent()

    def look_up(pause: Pause = no_pause) -> StrategiesView:
        return StrategiesView(
            strategies=tuple(
                msgspec.structs.replace(row, last_decision=_earlier(log, row.name, pause))
                if name and row.last_decision is None
                else row
                for row in found.strategies
            )
        )

    return look_up


def _earlier(log: Extent, name: str, pause: Pause) -> Record | None:
    records = explain(log, name, _EXPLAINED, pause)
    return next((each for each in records if each.owner == name and is_done(each)), None)
