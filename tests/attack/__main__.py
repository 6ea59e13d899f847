"""``python -m tests.attack [NAME ...]``: attacks by turns, for an hour by default, and a table of
what happened how often. It ends with 1 at the first difference."""

from __future__ import annotations

import argparse
import sys
import time

from tests.attack.attack import for_seconds, run
from tests.attack.attacks import ATTACKS
from tests.histories.history import quiet


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(sorted(ATTACKS)))
    parser.add_argument("--seconds", type=float, default=3600.0, help="for all of them together")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(ATTACKS))
    if unknown:
        parser.error(f"no such attack: {', '.join(unknown)}; there are {', '.join(ATTACKS)}")
    chosen = [ATTACKS[name] for name in options.names or ATTACKS]
    quiet()
    failed = 0
    for attack in chosen:
        if why := attack.lacks():
            print(f"{attack.name}: not played: {why}", flush=True)
            continue
        began = time.monotonic()
        try:
            counts = run(attack, options.seed, for_seconds(options.seconds / len(chosen)))
        except AssertionError as error:
            failed += 1
            print(f"{attack.name}: FAILED: {error}", *error.__notes__, sep="\n", flush=True)
            continue
        print(f"{attack.name}, seed {options.seed}, {time.monotonic() - began:.0f} s")
        for what, number in sorted(counts.items()):
            print(f"{number:9} {what}")
        print(f"{0:9} differences", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
