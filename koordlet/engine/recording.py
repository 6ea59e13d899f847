"""What the engine tells the inputs log of each turn."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import structlog

from koordlet import __version__
from koordlet.config import plugins
from koordlet.config.schema import Config
from koordlet.decision.plan import Decision
from koordlet.decision.snapshot import Snapshot
from koordlet.inputs.digest import digest, failure
from koordlet.inputs.log import Log
from koordlet.inputs.model import Owned, StoreShape
from koordlet.inputs.recorder import Policy, Recorder
from koordlet.state.snapshot import KernelView
from koordlet.tsdb.files import DiskFiles
from koordlet.tsdb.store import Store

if TYPE_CHECKING:
    from koordlet.engine.engine import Engine

log = structlog.get_logger()


def inputs_path(config: Config) -> str:
    return os.path.join(config.paths.state_dir, "inputs")


def recorder(config: Config, store: Store) -> Recorder | None:
    """None where it is switched off."""
    table, path = config.inputs, inputs_path(config)
    if not table.enable:
        return None
    # Annotations of pods are in there, which their owners may have meant for few.
    files = DiskFiles(path, mode=0o600)
    inputs = Log(files, path, max_bytes=table.max_bytes, retention_s=table.retention_s)
    shape = StoreShape(
        config.tsdb.hot_window_s, config.daemon.tick_seconds, int(config.tsdb.coarse_resolution_s)
    )
    return Recorder(inputs, __version__, shape, store.rounds)


P = ParamSpec("P")


def _isolated(
    work: Callable[Concatenate[Recording, Recorder, P], None],
) -> Callable[Concatenate[Recording, P], None]:
    """Nothing that is to be written down may keep a decision from being made."""

    @wraps(work)
    def run(self: Recording, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if self.recorder is None:
            return
        try:
            work(self, self.recorder, *args, **kwargs)
        except Exception as error:  # the isolation boundary: the recorder, whatever it raised
            log.error("inputs are not recorded any more", exc_info=error)
            self.recorder = None
            self.tell_problem(f"{type(error).__name__}: {error}; not before the next start")

    return run


class Recording:
    """``recorder`` None: nothing is recorded."""

    def __init__(self, engine: Engine, recorder: Recorder | None) -> None:
        self.recorder = recorder
        self._engine = engine
        self._policy: Policy | None = None
        self._digests: dict[str, tuple[Decision, int]] = {}
        self._problem = ""

    def reconfigured(self) -> None:
        self._policy = None

    @_isolated
    def begin(self, recorder: Recorder, snapshot: Snapshot) -> None:
        """Before anything is decided."""
        recorder.begin(snapshot.time, self._memories, self._owned)

    @_isolated
    def decided(self, recorder: Recorder, name: str, decision: Decision) -> None:
        recorder.decided(name, digest(decision))

    @_isolated
    def failed(self, recorder: Recorder, name: str, error: Exception) -> None:
        recorder.decided(name, failure(error))

    @_isolated
    def passed(
        self, recorder: Recorder, names: Sequence[str], decisions: Sequence[Decision]
    ) -> None:
        """A pass of the hooks, most of which decide what they decided before."""
        for name, decision in zip(names, decisions, strict=True):
            known = self._digests.get(name)
            if known is None or known[0] is not decision:
                known = self._digests[name] = decision, digest(decision)
            recorder.decided(name, known[1])

    @_isolated
    def end(self, recorder: Recorder, snapshot: Snapshot) -> None:
        """All is decided, nothing is written yet."""
        assert isinstance(snapshot.in_force, KernelView)
        engine = self._engine
        if self._policy is None:
            origins = {name: plugins.origin(name) for name in engine.loaded.config.plugins}
            self._policy = Policy(engine.strategies, engine.hooks, dict(engine.runs), origins)
        reads, rounds = snapshot.in_force.reads, engine.parts.store.rounds
        recorder.end(snapshot, reads, self._policy, self._shown(), rounds)
        self.tell_problem(recorder.log.problem)

    def tell_problem(self, text: str) -> None:
        if text == self._problem:
            return
        self._problem, problems = text, self._engine.parts.problems
        if text:
            log.warning("inputs are not recorded", error=text)
            problems["inputs"] = text
        else:
            problems.pop("inputs", None)

    def _shown(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        engine = self._engine
        names = [each.name for each in engine.strategies]
        if engine.observing:
            return tuple(names), ()
        if not engine.pausing.pauses.current:
            return (), ()
        return (
            tuple(name for name in names if engine.only_shows(name)),
            tuple(name for name in names if engine.pausing.whole(name) is not None),
        )

    def _memories(self) -> Mapping[str, Any]:
        runs = self._engine.runs
        return {s.name: s.lasting(runs[s.name].memory) for s in self._engine.strategies}

    def _owned(self) -> tuple[Owned, ...]:
        return tuple(
            Owned(*key, entry.original.value, entry.ours[-1] if entry.ours else None)
            for key, entry in self._engine.parts.journal.entries.items()
        )
