"""Instants as Kubernetes writes them."""

from __future__ import annotations

import datetime

_UTC = datetime.UTC


def instant(epoch_s: float) -> str:
    """``2026-11-24T10:00:00Z``, as in ``metav1.Time``."""
    return datetime.datetime.fromtimestamp(int(epoch_s), _UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_instant(epoch_s: float) -> str:
    """With microseconds, as in ``metav1.MicroTime``."""
    return datetime.datetime.fromtimestamp(epoch_s, _UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
