"""How much of what a pod's author writes is read. Every bound stands here.

The API server takes 256 KiB of annotations for an object. All of that is input of somebody who
may want to stop this daemon, so each key has a bound of its own, far above what the protocol
needs on the largest machines (4096 CPUs, 64 NUMA nodes, 16 GPUs, 50 containers) and small enough
that its costliest text is read in less than 5 ms. What is above it is refused like any other bad
value.
"""

from __future__ import annotations

from typing import NamedTuple


class Limit(NamedTuple):
    """Of the text of a key. ``values``: elements and members of its JSON, in all levels."""

    characters: int
    values: int = 1


LABEL = Limit(63)
"""As in the API server."""
NUMBER = Limit(32)
STRATEGY = Limit(2 << 10, 64)
"""Some fields of one strategy."""
EVICTION_POLICY = Limit(1 << 10, 32)
"""There are six features."""
BLOCKS = Limit(8 << 10, 512)
"""20 devices with all 16 fields."""
BY_CONTAINER = Limit(4 << 10, 64)
"""A number for each container."""
EXTENDED_RESOURCES = Limit(16 << 10, 512)
"""Requests and limits of 50 containers, 7 values each."""
RESCTRL = Limit(8 << 10, 512)
"""Ways and bandwidth of 48 caches, 5 values each."""
RESOURCE_STATUS = Limit(24 << 10, 512)
"""A list of every other of 4096 CPUs (10 KiB), 64 NUMA nodes with 5 resources each."""
DEVICES = Limit(16 << 10, 512)
"""16 GPUs, 16 network cards with 8 virtual functions each."""
NODE = Limit(24 << 10, 672)
"""The node's own annotations, which no pod writes: CPUs of 110 pods that have their own (kubelet
runs no more by default), 6 values each."""

CPU_ID = 4096
"""The reference accepts ids up to this (docs/reference/qos.md 8.5)."""
CPU_LIST_CHARACTERS = 10 << 10
"""Every other of 4096 CPUs; no list of the kernel or the scheduler is longer."""
CPU_LIST_PARTS = CPU_ID + 1
CPUS_PER_DOCUMENT = 2 * CPU_LIST_PARTS
"""In all lists of one document together. Lists of a node do not overlap."""
NAME_CHARACTERS = 317
"""Of keys and texts inside a document: a label name of Kubernetes with its prefix."""
QUANTITY_CHARACTERS = 128
"""The largest value has 19 digits before the point."""
JSON_DEPTH = 64
"""Nothing in the protocol nests deeper than ten levels."""

REPORTED_LINE_BYTES = 1 << 20
"""Of what the daemon keeps of one pod in a file: all keys at their bounds, every character
escaped, and 100 containers."""

PROBLEMS_PER_KEY = 8
PROBLEMS_PER_POD = 32
MESSAGE_CHARACTERS = 300
"""Of a problem of a pod; its path has as many at most."""
KEY_CHARACTERS_SHOWN = 128

CPU_BYTES = 32
"""Of memory for an id in a set."""
VALUE_BYTES = 160
"""Of memory for a value of a document, a quantity with its name at worst."""
VERDICT_CACHE_BYTES = 16 << 20
"""Usual pods have 10 KiB of verdicts, the worst ones 500 KiB."""
CPU_LIST_CACHE_BYTES = 4 << 20
