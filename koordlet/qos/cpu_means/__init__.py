"""CPU means: how best effort is held back is tried on the node itself; the least harmful stays."""
