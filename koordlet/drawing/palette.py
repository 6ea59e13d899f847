"""Colours of all pages and pictures: one meaning each, readable on both backgrounds.

A test computes the contrast of every pair that meets: 4.5:1 and more (WCAG 2.1, 1.4.3).
"""

from __future__ import annotations

LIGHT = {
    "bg": "#ffffff",
    "soft": "#f5f7f9",
    "line": "#d0d6dc",  # rules and grids, which nobody has to read
    "fg": "#1c1f23",
    "muted": "#515a64",
    "ls": "#0b5cad",  # the latency-sensitive service
    "be": "#a34700",  # best-effort work
    "rest": "#626b75",  # what is neither
    "koordlet": "#6b3fa0",  # what koordlet has done: limits, decisions, alarms
    "good": "#196c2e",  # a goal that was reached
    "bad": "#b3261e",  # one that was missed
    "cpu": "#8a1c5b",  # what somebody waited for
    "mem": "#00695c",
    "io": "#5d5300",
    "throttled": "#6d4c41",  # or was stopped by
    "heat": "#f2a65a",  # a full cell of a heat map, under figures
}
DARK = {
    "bg": "#12161b",
    "soft": "#1b2027",
    "line": "#3a424c",
    "fg": "#e6e9ec",
    "muted": "#aeb6bf",
    "ls": "#6cb6ff",
    "be": "#f0a04b",
    "rest": "#98a2ad",
    "koordlet": "#cda9ff",
    "good": "#5fd07c",
    "bad": "#ff8f86",
    "cpu": "#ff7ac6",
    "mem": "#4dd0c1",
    "io": "#d4c94a",
    "throttled": "#d7a98c",
    "heat": "#7a3a00",
}
BACKGROUNDS = ("bg", "soft")
UNREAD = ("line",)
UNDER_TEXT = ("heat",)
"""Text in the colour ``fg`` stands on these."""


def variables(palette: dict[str, str]) -> str:
    """As properties of CSS, such as ``--ls: #0b5cad;``."""
    return " ".join(f"--{name}: {colour};" for name, colour in palette.items())
