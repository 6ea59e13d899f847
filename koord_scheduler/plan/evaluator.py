"""All plugins' verdicts on all nodes for a class of pods, kept until a row changes.

For each class that was asked about of late there are the first reason against each node and the
weighted sum of all scores that need no normalising. Scores that do are kept as they are, because
one changed node can change what all others are compared with.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints, Rows
from koord_scheduler.model.cluster.pods import PodClass
from koord_scheduler.model.cluster.verdict import FITS, Codes, Normalize, Plugin, Verdict
from koord_scheduler.plan.profile import Enabled

MOST_CLASSES = 512
"""At 5,000 nodes a class takes some 35 KiB."""
Unseen = Callable[[Cluster, PodClass], Collection[int]]
Narrow = NDArray[np.int8 | np.int16 | np.int32 | np.int64]
GONE = -1
"""The code of a row without a node."""
_MOST_CHARACTERS = 256
_RESERVATION = "Reservation"
_OF_NEIGHBOURS = frozenset({"InterPodAffinity", "PodTopologySpread", "NodePorts"})
"""Plugins to which it matters who else is there."""
_MOST_SCORE = 2**31 - 1
"""Sums are kept in 32 bits."""


class PluginError(Exception):
    """A plugin failed on a class of pods; the text says how."""

    def __init__(self, plugin: str, words: str) -> None:
        super().__init__(f"plugin {plugin} failed: {words[:_MOST_CHARACTERS]}")
        self.plugin = plugin


class _Kept:
    """``why``: FITS, GONE or the code of the first local reason. ``base``: the weighted sum of
    local scores that are 0 to 100 already. ``raw``: scores of local plugins that are normalised, by
    the plugin's place, in as few bits as hold them; None while they are 0. Only scores of rows
    where the pod fits count."""

    __slots__ = ("base", "raw", "version", "why")

    def __init__(self, size: int) -> None:
        self.version = -1
        self.why: Codes = np.full(size, GONE, np.int16)
        self.base: Narrow = np.zeros(size, np.int32)
        self.raw: dict[int, Narrow | None] = {}

    def grow(self, size: int) -> None:
        more = size - len(self.why)
        if more > 0:
            self.why = np.pad(self.why, (0, more), constant_values=GONE)
            self.base = np.pad(self.base, (0, more))
            for i, each in self.raw.items():
                self.raw[i] = None if each is None else np.pad(each, (0, more))


class Judged:
    """What all plugins say to one pod: ``why`` for every row, the rows where it fits and the scores
    of these rows."""

    __slots__ = ("rows", "scores", "why")

    def __init__(self, why: Codes, rows: Rows, scores: Ints) -> None:
        self.why = why
        self.rows = rows
        self.scores = scores


class Evaluator:
    def __init__(self, cluster: Cluster, plugins: Sequence[tuple[Plugin, Enabled]]) -> None:
        self.cluster = cluster
        self.plugins = tuple(plugins)
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._local = tuple(i for i, (plugin, _) in enumerate(plugins) if plugin.local)
        by_name = {plugin.name: plugin for plugin, _ in plugins}
        self._unseen: Unseen | None = getattr(by_name.get(_RESERVATION), "unseen", None)
        """Classes that are no neighbours of such pods."""
        self._others = tuple(i for i, (plugin, _) in enumerate(plugins) if not plugin.local)

    def local(self, cls: PodClass) -> Codes:
        """The first local reason for every row; the caller must not change it."""
        return self._refreshed(cls).why

    def opens(self, cls: PodClass, rows: Rows) -> bool:
        """Whether no plugin has a local reason against one of these nodes. Of a class that is not
        kept the others are not judged for it."""
        if cls.number in self._kept:
            return bool((self._refreshed(cls).why[rows] == FITS).any())
        rows = rows[self.cluster.alive[rows]]
        for i in self._local:
            plugin, enabled = self.plugins[i]
            if len(rows) and enabled.filters and self.applies(plugin, cls):
                rows = rows[self._ask(plugin, cls, rows).why == FITS]
        return bool(len(rows))

    def judge(
        self, cls: PodClass, rows: Rows | None = None, veto: Mapping[int, int] | None = None
    ) -> Judged:
        """``rows``: where the pod may go at all. ``veto``: row -> a reason against it that is this
        decision's alone."""
        kept = self._refreshed(cls)
        why = kept.why.copy()
        for row, code in (veto or {}).items():
            if why[row] == FITS:
                why[row] = code
        fits = (why == FITS).nonzero()[0] if rows is None else rows[why[rows] == FITS]
        scores: dict[int, Ints] = {}
        normal: set[int] = set()
        for i in self._others:
            plugin, enabled = self.plugins[i]
            if not len(fits) or not self.applies(plugin, cls):
                continue
            verdict = self._ask(plugin, cls, fits)
            if enabled.scores and verdict.score is not None:
                scores[i] = verdict.score
                if verdict.is_normal:
                    normal.add(i)
            left = verdict.why == FITS
            if enabled.filters and not left.all():
                why[fits] = verdict.why
                fits = fits[left]
                scores = {j: each[left] for j, each in scores.items()}
        total: Ints = kept.base[fits].astype(np.int64)
        if len(fits):
            for i, raw in kept.raw.items():
                self._count(total, i, None if raw is None else raw[fits].astype(np.int64))
            for i, score in scores.items():
                self._count(total, i, score, is_normal=i in normal)
        return Judged(why, fits, total)

    def fits(self, cls: PodClass, rows: Rows) -> Codes:
        """The first reason of each of these rows, now, without what is kept. For trials, in which
        a row changes with every step."""
        why = np.where(self.cluster.alive[rows], FITS, GONE).astype(np.int16)
        where = np.flatnonzero(why == FITS)
        for plugin, enabled in self.plugins:
            if not len(where):
                break
            if enabled.filters and self.applies(plugin, cls):
                found = self._ask(plugin, cls, rows[where]).why
                why[where] = found
                where = where[found == FITS]
        return why

    def refuse(self, cls: PodClass, row: int, code: int) -> None:
        """An allocator found no way on a node where all plugins agree; so it is until the row
        changes."""
        kept = self._refreshed(cls)
        if kept.why[row] == FITS:
            kept.why[row] = code

    def every(self, cls: PodClass, rows: Rows) -> dict[str, Codes]:
        """What each plugin that refuses any of these rows says, whatever others say."""
        found: dict[str, Codes] = {}
        for plugin, enabled in self.plugins:
            if enabled.filters and self.applies(plugin, cls):
                why = self._ask(plugin, cls, rows).why
                if why.any():
                    found[plugin.name] = why
        return found

    def scores(self, cls: PodClass, rows: Rows) -> dict[str, Ints]:
        """Weighted and normalised over ``rows``, which must all fit, by plugin."""
        found: dict[str, Ints] = {}
        for i, (plugin, enabled) in enumerate(self.plugins):
            if len(rows) and enabled.scores and self.applies(plugin, cls):
                verdict = self._ask(plugin, cls, rows)
                if verdict.score is not None:
                    into = found[plugin.name] = np.zeros(len(rows), np.int64)
                    self._count(into, i, verdict.score, is_normal=verdict.is_normal)
        return found

    def applies(self, plugin: Plugin, cls: PodClass) -> bool:
        """Raises PluginError."""
        try:
            return plugin.applies(self.cluster, cls)
        except Exception as error:  # as in `_ask`
            raise PluginError(plugin.name, repr(error)) from error

    def _hidden(self, cls: PodClass) -> Collection[int]:
        return self._unseen(self.cluster, cls) if self._unseen is not None else ()

    def _ask(self, plugin: Plugin, cls: PodClass, rows: Rows) -> Verdict:
        try:
            if plugin.name in _OF_NEIGHBOURS and (unseen := self._hidden(cls)):
                with self.cluster.unseen(unseen):
                    verdict = plugin.judge(self.cluster, cls, rows)
            else:
                verdict = plugin.judge(self.cluster, cls, rows)
        except Exception as error:  # whatever a plugin raises, only this class of pods is refused
            raise PluginError(plugin.name, repr(error)) from error
        why, score, _ = verdict
        if len(why) != len(rows) or (score is not None and len(score) != len(rows)):
            raise PluginError(
                plugin.name, f"it was asked about {len(rows)} nodes, not about others"
            )
        return verdict

    def _count(self, total: Ints, i: int, score: Ints | None, *, is_normal: bool = False) -> None:
        """Adds the score of a plugin, normalised over the rows that are left
        (docs/reference/central.md
        0.1). None: 0 for each."""
        plugin, enabled = self.plugins[i]
        if score is not None and plugin.normalize is not Normalize.NO and not is_normal:
            most = int(score.max())
            if most > 0:
                score = score * 100 // most
        if plugin.normalize is Normalize.REVERSE:
            total += enabled.weight * (100 if score is None else 100 - score)
        elif score is not None:
            total += enabled.weight * score

    def _refreshed(self, cls: PodClass) -> _Kept:
        size = len(self.cluster.nodes)
        kept = self._kept.get(cls.number)
        if kept is None:
            if len(self._kept) >= MOST_CLASSES:
                self._kept.popitem(last=False)
            kept = self._kept[cls.number] = _Kept(size)
        else:
            self._kept.move_to_end(cls.number)
        if kept.version == self.cluster.version:
            return kept
        kept.grow(size)
        changed = self.cluster.since(kept.version)
        if len(changed):
            self._judge_again(kept, cls, changed)
        kept.version = self.cluster.version
        return kept

    def _judge_again(self, kept: _Kept, cls: PodClass, rows: Rows) -> None:
        alive = self.cluster.alive[rows]
        if np.count_nonzero(alive) < len(rows):
            kept.why[rows[~alive]] = GONE
            rows = rows[alive]
        for raw in kept.raw.values():
            if raw is not None:
                raw[rows] = 0
        base = np.zeros(len(rows), np.int64)
        for i in self._local:
            if not len(rows):
                return
            plugin, enabled = self.plugins[i]
            if not self.applies(plugin, cls):
                continue
            why, score, _ = self._ask(plugin, cls, rows)
            if enabled.scores and score is not None:
                if plugin.normalize is Normalize.NO:
                    base = base + score * enabled.weight
                else:
                    self._raw(kept, i, rows, score)
            if enabled.filters and np.count_nonzero(why):
                kept.why[rows] = why
                fits = why == FITS
                rows, base = rows[fits], base[fits]
        kept.why[rows] = FITS
        kept.base[rows] = base.clip(-_MOST_SCORE, _MOST_SCORE)

    def _raw(self, kept: _Kept, i: int, rows: Rows, score: Ints) -> None:
        raw = kept.raw.setdefault(i, None)
        if raw is None:
            if not np.count_nonzero(score):
                return
            raw = kept.raw[i] = np.zeros(len(kept.why), np.int8)
        lowest = min(int(score.min()), ~int(score.max()))
        if lowest < np.iinfo(raw.dtype).min:
            raw = kept.raw[i] = raw.astype(np.min_scalar_type(lowest))
        raw[rows] = score
