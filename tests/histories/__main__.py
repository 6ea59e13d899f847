"""Repeat histories: ``python -m tests.histories SEED [SEED ...]``, or some steps of one:
``python -m tests.histories SEED --steps KIND:NUMBER,KIND:NUMBER``. ``--trace`` tells each step,
write and outcome; ``--shrink`` looks for fewer steps that fail."""

from __future__ import annotations

import argparse
import sys
import traceback

from tests.histories.history import Step, generate, play, quiet
from tests.histories.shrink import command, shrink


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("seeds", nargs="+", type=int)
    parser.add_argument("--steps", help="of the one seed given")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--shrink", action="store_true")
    options = parser.parse_args()
    quiet()
    failed = 0
    for seed in options.seeds:
        steps = generate(seed)
        if options.steps is not None:
            pairs = (part.rpartition(":") for part in options.steps.split(",") if part)
            steps = [Step(kind, int(number)) for kind, _, number in pairs]
        try:
            play(seed, steps, trace=print if options.trace else None)
        except Exception:
            failed += 1
            traceback.print_exc()
            if options.shrink:
                steps = shrink(seed, steps, limit_s=60.0)
            print(command(seed, steps))
        else:
            print(f"history {seed}: {len(steps)} steps, all invariants held")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
