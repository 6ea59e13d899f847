"""Cold memory as the store has it, put together for one subject."""

from __future__ import annotations

from collections.abc import Callable

from koordlet.admin.model.usage import ColdView
from koordlet.collectors.cold.groups import Kinds
from koordlet.decision.metrics import Metric


def cold_of(
    newest: Callable[[Metric], float | None], kinds: Kinds, method: Callable[[], str]
) -> ColdView | None:
    """``newest``: the newest sample of the subject; ``method``: how cold memory is found. None
    where nothing is known of it."""

    def value(metric: Metric | None) -> float | None:
        return None if metric is None else newest(metric)

    file, anon, mapped = map(value, (kinds.cold_file, kinds.cold_anon, kinds.cold_mapped))
    confirmed, refault = value(kinds.confirmed), value(kinds.refault)
    if file is anon is mapped is confirmed is refault is None:
        return None
    is_found = not (file is anon is mapped is None)
    return ColdView(
        method=method() if is_found else "",
        file_bytes=_whole(file),
        anon_bytes=_whole(anon),
        mapped_bytes=_whole(mapped),
        confirmed_bytes=_whole(confirmed),
        refault_bytes_per_s=refault,
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
