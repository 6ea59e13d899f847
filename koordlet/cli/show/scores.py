"""How good models were, as a table."""

from __future__ import annotations

from koordlet.admin.prediction import ScoreView
from koordlet.cli import output


def score_table(scores: tuple[ScoreView, ...]) -> list[str]:
    """MISSES and OVER by model."""
    rows = (
        (
            each.model,
            each.resource,
            each.subject,
            output.ratio(each.miss_ratio),
            output.ratio(each.over_ratio),
        )
        for each in scores
    )
    return output.columns(("MODEL", "RESOURCE", "OF", ">MISSES", ">OVER"), rows)
