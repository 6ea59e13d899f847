"""``make cluster``: the story on this machine, with times. The second act follows on the same
cluster; ``--chaos SECONDS`` kills at random afterwards."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.cluster.whole import chaos, second
from tests.cluster.whole.cluster import whole
from tests.cluster.whole.story import Story, teller
from tests.realkube import node
from tests.realkube.binaries import directory


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cluster", description=__doc__)
    parser.add_argument("--chaos", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=None, help="of what is killed when")
    args = parser.parse_args()
    if reason := node.why_not() or _not_built():
        print(f"make cluster: {reason}", file=sys.stderr)
        return 1
    tell = teller(lambda text: print(text, flush=True))
    with tempfile.TemporaryDirectory(prefix="koordlet-cluster-") as work:
        with whole(Path(work)) as made:
            story = Story(made, tell)
            story.all()
            second.play(made.plane, second.process_of(made.plane, Path(work)), tell)
            if args.chaos:
                chaos.run(story, args.chaos, args.seed)
        tell("everything is removed again")
    return 0


def _not_built() -> str:
    if (directory() / "version").exists():
        return ""
    return "no Kubernetes is built here: tools/fetch-cluster (some ten minutes, once; needs Go)"


if __name__ == "__main__":
    raise SystemExit(main())
