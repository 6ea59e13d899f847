"""``make cluster-v2``: the story of a node with cgroup v2, systemd and a real kubelet, in an
emulated guest; docs/testing.md."""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.cluster.v2.cluster import emulated_cluster
from tests.cluster.v2.machine import Shape
from tests.cluster.v2.story import PODS_THAT_COME_AND_GO, Story
from tests.cluster.whole.story import teller
from tests.realkube.binaries import directory
from tests.runtime.containerd import binaries_of
from tests.vm.disks import REPOSITORY
from tests.vm.machine import CANNOT_RUN


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cluster-v2", description=__doc__)
    parser.add_argument(
        "--pods", type=int, default=PODS_THAT_COME_AND_GO, help="how many come and go (%(default)s)"
    )
    parser.add_argument("--proxy", action="store_true", help="a shorter one, by the CRI proxy")
    args = parser.parse_args()
    if reason := why_not():
        print(f"make cluster-v2: {reason}", file=sys.stderr)
        return CANNOT_RUN
    # As Ctrl-C does, so that nothing remains.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    tell = teller(lambda text: print(text, flush=True))
    with tempfile.TemporaryDirectory(prefix="koordlet-cluster-v2-") as work:
        with emulated_cluster(Path(work), Shape(runtime(), by_proxy=args.proxy)) as made:
            story = Story(made, tell, args.pods)
            if args.proxy:
                story.short()
            else:
                story.all()
        tell("everything is removed again")
    return 0


def why_not() -> str:
    """Why there is no such node on this machine; empty where there is one."""
    if not (directory() / "version").exists():
        return "no Kubernetes is built here: tools/fetch-cluster (some ten minutes, once; needs Go)"
    if not runtime().exists():
        return "no containerd 2: tools/fetch-containerd or tools/fetch-runtime sid says why"
    if shutil.which("busybox") is None:
        return "needs busybox"
    setup = subprocess.run(
        [REPOSITORY / "tools" / "test-vm-setup"], stderr=subprocess.PIPE, text=True, check=False
    )
    return "" if setup.returncode == 0 else setup.stderr.strip() or "tools/test-vm-setup failed"


def runtime() -> Path:
    """The newest containerd and runc that are built here, else those of Debian sid."""
    where = [REPOSITORY / "tools" / "fetch-containerd", "--where"]
    done = subprocess.run(where, capture_output=True, text=True, check=True)
    built = Path(done.stdout.strip())
    return built / "bin" if (built / "version").exists() else binaries_of("2.x")


if __name__ == "__main__":
    raise SystemExit(main())
