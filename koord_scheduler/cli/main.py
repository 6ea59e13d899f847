"""``koord-scheduler``: the entry point."""

from __future__ import annotations

import sys


def main() -> int:
    print("koord-scheduler: no command yet", file=sys.stderr)
    return 2
