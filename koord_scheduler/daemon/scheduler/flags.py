"""Switches for who looks for a reason, turned while it runs (docs/reference/central.md 9.1)."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec
import structlog

from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.plan import explain
from koord_scheduler.plan.diagnosis import diagnose
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.evaluator import PluginError
from koord_scheduler.plan.outcomes import Failure
from koord_scheduler.services.http import Reply, Request, Route
from koordlet.protocol.objects.times import instant

_MOST_SCORES = 100
_TRUE, _FALSE = ("true", "1", "t"), ("false", "0", "f")
_TEXT = "text/plain"
_log = structlog.get_logger()


class Flags:
    """``scores``: how many of the best nodes are logged for each pod; ``filters``: what refuses
    each pod; ``dump``: the whole diagnosis of each pod that found no node."""

    def __init__(self) -> None:
        self.scores = 0
        self.filters = self.dump = False

    def before(self, engine: Engine, pod: Pod) -> None:
        if not self.scores:
            return
        try:
            head, rows = explain.table(explain.ranking(engine, pod.cls, self.scores))
        except PluginError as error:
            _log.info("scores", pod=pod.key, error=str(error))
            return
        for number, row in enumerate(rows, 1):
            shown = " ".join(f"{name}={value}" for name, value in zip(head, row, strict=False))
            _log.info("score", number=number, pod=pod.key, columns=shown)

    def failed(self, engine: Engine, failure: Failure) -> None:
        if not (self.filters or self.dump):
            return
        try:
            made = diagnose(engine, failure, instant(engine.cluster.now_s))
        except PluginError as error:
            _log.info("diagnosis", pod=failure.pod.key, error=str(error))
            return
        if self.filters:
            for each in made.schedule_diagnosis.node_failed_details:
                _log.info(
                    "refused",
                    pod=failure.pod.key,
                    plugin=each.failed_plugin,
                    reason=each.reason,
                    nodes=",".join(each.failed_nodes),
                )
        if self.dump:
            _log.info("diagnosis", pod=failure.pod.key, record=msgspec.json.encode(made).decode())

    def routes(self) -> list[Route]:
        paths: dict[str, Callable[[str], str]] = {
            "v": self._set_verbosity,
            "s": self._set_scores,
            "f": self._set_filters,
            "d": self._set_dump,
            "db": self._set_dump_at_once,
        }
        index = "".join(f'<a href="/debug/flags/{name}">{name}</a><br>\n' for name in paths)

        def listing(_request: Request) -> Reply:
            return Reply(200, f"<html><body>\n{index}</body></html>\n", "text/html")

        made = [Route("GET", "/debug/flags", listing)]
        for name, put in paths.items():
            made.append(Route("*", f"/debug/flags/{name}", _putting(put)))
        return made

    def _set_verbosity(self, text: str) -> str:
        level = int(text)
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(
                logging.DEBUG if level >= 4 else logging.INFO
            )
        )
        return f"successfully set klog.logging.verbosity to {level}"

    def _set_scores(self, text: str) -> str:
        self.scores = min(max(int(text), 0), _MOST_SCORES)
        return f"successfully set debugTopNScores to {self.scores}"

    def _set_filters(self, text: str) -> str:
        self.filters = _bool(text)
        return f"successfully set debugFilterFailure to {text.strip()}"

    def _set_dump(self, text: str) -> str:
        self.dump = _bool(text)
        return f"successfully set debugFilterFailure to {text.strip()}"

    def _set_dump_at_once(self, text: str) -> str:
        """Dumps are always made at once here: the switch is accepted and changes nothing."""
        _bool(text)
        return f"successfully set debugFilterFailure to {text.strip()}"


def _putting(put: Callable[[str], str]) -> Callable[[Request], Reply]:
    def reply(request: Request) -> Reply:
        if request.method != "PUT":
            return Reply(406, "unsupported http method", _TEXT)
        try:
            return Reply(200, put(request.body), _TEXT)
        except ValueError as error:
            return Reply(400, f"failed to set: {error}", _TEXT)

    return reply


def _bool(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError(f"{word[:40]!r} is neither true nor false")
    return word in _TRUE
