"""Names of resources as columns of arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from koordlet.protocol import resources

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.intp]

MOST_AMOUNT = 1 << 50
"""Amounts are clipped to this, so that thousands of them still add up in 64 bits."""
MOST_COLUMNS = 256
CPU, MEMORY, PODS, STORAGE, BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY = range(8)
_FIRST = (
    resources.CPU,
    resources.MEMORY,
    "pods",
    "ephemeral-storage",
    resources.BATCH_CPU,
    resources.BATCH_MEMORY,
    resources.MID_CPU,
    resources.MID_MEMORY,
)


class Columns:
    """The first eight are fixed; others come as nodes offer them. A pod that asks for what no node
    offers adds none."""

    def __init__(self) -> None:
        self.names: list[str] = list(_FIRST)
        self.index: dict[str, int] = {name: i for i, name in enumerate(_FIRST)}

    def __len__(self) -> int:
        return len(self.names)

    def add(self, name: str) -> bool:
        """Whether the name has a column now; the table holds ``MOST_COLUMNS``."""
        if name in self.index:
            return True
        if len(self.names) >= MOST_COLUMNS:
            return False
        self.index[name] = len(self.names)
        self.names.append(name)
        return True

    def vector(self, amounts: Mapping[str, int]) -> Ints:
        """``amounts`` in their columns, clipped to 0 and MOST_AMOUNT; names without one are left
        out."""
        found = np.zeros(len(self.names), np.int64)
        for name, amount in amounts.items():
            column = self.index.get(name)
            if column is not None:
                found[column] = min(max(amount, 0), MOST_AMOUNT)
        return found
