"""Restored values as the local API shows them."""

from __future__ import annotations

from koordlet.actuator.restore import RestoreReport
from koordlet.admin.undo import LeftoverView, RestoredView, RestoreView
from koordlet.decision.names import shown
from koordlet.decision.record import text_of


def restore_view(report: RestoreReport, *, dry_run: bool) -> RestoreView:
    return RestoreView(
        dry_run=dry_run,
        complete=report.ok,
        damage=report.damage,
        leftovers=tuple(LeftoverView(path=path, why=why) for path, why in report.leftovers.items()),
        values=tuple(
            RestoredView(
                cgroup=shown(item.cgroup),
                resource=item.resource,
                path=shown(item.path),
                found=text_of(item.found),
                original=text_of(item.original),
                result=item.status,
                why=item.text,
            )
            for item in report.items
        ),
    )
