"""The disks of a guest besides its root: Python packages, this working tree, results."""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.recording import commit
from tests.vm.services import copy_bcc, copy_services
from tests.vm.stages import Stage

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS_MIB = 64
# Which wheels a guest can load: those for the libc of Debian 12 and older ones.
_PLATFORMS = [*(f"manylinux_2_{minor}" for minor in range(36, 16, -1)), "manylinux2014"]
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_LAUNCHER = """\
#!/opt/koordlet/bin/python
from koordlet.cli.main import main
raise SystemExit(main())
"""
# In the guest. The results are a tar archive on the bare disk, so that the host needs no mount.
_MAIN = """\
#!/bin/sh
mkdir -p /opt/koordlet /tmp/results
mount -t ext4 /dev/vdc /opt/koordlet
# As systemd does, where there is one.
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
[ "$(uname -m)" = aarch64 ] || ip link set lo up # those of arm64 are without a network
export KOORDLET_GUEST={guest} KOORDLET_COMMIT={commit}
export HYPOTHESIS_STORAGE_DIRECTORY=/tmp/hypothesis COLUMNS=120
# /tmp is no disk: what is written there is no page cache.
export TMPDIR=/var/tmp
export PATH=/opt/koordlet/bin:$PATH XDG_CACHE_HOME=/srv/koordlet/cache
if [ -d /srv/koordlet/bcc ]; then
    ln -s /srv/koordlet/bcc/src/* /usr/src/
    cp -rsn /srv/koordlet/bcc/lib/. /usr/lib/
    ldconfig
fi
cd /srv/koordlet/tree || exit
stage() {{
    name=$1 limit_s=$2
    shift 2
    echo "=== stage $name at $(cut -d ' ' -f 1 /proc/uptime) s"
    timeout -k 10 "$limit_s" "$@"
    status=$?
    echo "=== stage $name ended with $status at $(cut -d ' ' -f 1 /proc/uptime) s"
    echo $status >"/tmp/results/$name.status"
}}
all() {{
    :
{stages}
}}
all 2>&1 | cat # a pipe: on a terminal pytest draws
tar -cf /dev/vdd -C /tmp/results .
sync
"""
# Plain assertions: pytest would compile each module anew, twenty times slower than here.
_PYTEST = (
    "python -m pytest -v -rfEsP --color=no --durations=8 --timeout=300 -p no:cacheprovider "
    "--assert=plain --showlocals"
)


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "koordlet" / "vm"


def forget_unused(used: Iterable[Path]) -> None:
    """Removes guests and packages of earlier recipes that no run has used for a month."""
    for path in used:
        os.utime(path)
    too_old_s = time.time() - 30 * 86400
    for path in cache().iterdir():
        if re.search(r"-[0-9a-f]{12}(\.img)?$", path.name) and path.stat().st_mtime < too_old_s:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_ext4(directory: Path, image: Path) -> None:
    """With room for what is written in the guest, and thrown away with it."""
    size = subprocess.run(
        ["du", "-sm", "--apparent-size", str(directory)], check=True, capture_output=True, text=True
    )
    mib = int(size.stdout.split()[0]) * 3 // 2 + 64
    subprocess.run(
        ["mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-d", str(directory),
         str(image), f"{mib}M"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def _version(image: Path) -> str:
    """Of the guest's Python, such as 3.13."""
    script = "import sys; print('%d.%d' % sys.version_info[:2])"
    return _interpreter(image, "-c", script).strip()


def _interpreter(image: Path, *arguments: str) -> str:
    """The guest's Python on this machine."""
    command = [str(image / "interpreter" / "python"), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _compile(image: Path, directory: Path, shown_as: str) -> None:
    """Ahead of time: in the guest it takes twenty times as long."""
    _interpreter(
        image, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash",
        "-s", str(directory), "-p", shown_as, str(directory),
    )  # fmt: skip


def packages_disk(image: Path, architecture: str) -> Path:
    """``/opt/koordlet`` of a guest: an environment with what koordlet and its tests import and
    what installs koordlet, for the guest's Python. Kept, and made anew when pyproject.toml asks
    for something else."""
    asked = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    project = asked["project"]
    wanted = [*project["dependencies"], *_extra(project, "test")]
    wanted += ["pip", *asked["build-system"]["requires"]]
    version = _version(image)
    platforms = [f"{platform}_{_MACHINES[architecture]}" for platform in _PLATFORMS]
    recipe = repr((wanted, version, platforms, _LAUNCHER, inspect.getsource(_make_prefix)))
    key = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    name = f"packages-{version}-{architecture}"
    disk = cache() / f"{name}-{key}.img"
    with _locked(cache() / f"{name}.lock"):
        if not disk.exists():
            with tempfile.TemporaryDirectory(prefix="work-", dir=cache()) as work:
                prefix = Path(work) / "koordlet"
                _make_prefix(prefix, version, wanted, platforms)
                _compile(image, prefix, "/opt/koordlet")
                make_ext4(prefix, Path(work) / "image")
                (Path(work) / "image").rename(disk)
        forget_unused((image, disk))
    return disk


def _extra(project: dict[str, Any], name: str) -> list[str]:
    """What an extra asks for; one that names another extra of ours has its things too."""
    found = []
    for each in project["optional-dependencies"][name]:
        ours = re.fullmatch(r"koordlet\[([\w,-]+)\]", each)
        inner = ours[1].split(",") if ours else []
        found += [part for extra in inner for part in _extra(project, extra)] if ours else [each]
    return found


def _make_prefix(prefix: Path, version: str, wanted: list[str], platforms: list[str]) -> None:
    site = prefix / "lib" / f"python{version}" / "site-packages"
    site.mkdir(parents=True)
    options = [word for platform in platforms for word in ("--platform", platform)]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check",
         "--no-compile", "--only-binary", ":all:", "--implementation", "cp",
         "--python-version", version, *options, "--target", str(site), *wanted],
        check=True,
    )  # fmt: skip
    (site / "koordlet.pth").write_text("/srv/koordlet/tree\n/srv/koordlet/links\n")
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (prefix / "bin").mkdir()
    for name in ("python", "python3"):
        (prefix / "bin" / name).symlink_to("/usr/bin/python3")
    launcher = prefix / "bin" / "koordlet"
    launcher.write_text(_LAUNCHER)
    launcher.chmod(0o755)


def payload_disk(guest: str, image: Path, stages: tuple[Stage, ...], disk: Path) -> None:
    """``/srv/koordlet`` of a guest: the working tree as it is now, and what to run."""
    with tempfile.TemporaryDirectory(dir=disk.parent) as work:
        tree = Path(work) / "tree"
        # What make deb has made is ignored by git, and tests/vm/test_guest_deb.py installs it.
        packages = (str(each.relative_to(REPOSITORY)) for each in REPOSITORY.glob("dist/*.deb"))
        copy_tree(image, tree, more=packages)
        links = Path(work) / "links"
        links.mkdir()
        (links / "koordlet_fakefs").symlink_to("/srv/koordlet/tree/tests/fakefs")
        if any(stage.services for stage in stages):
            copy_services(Path(work) / "cache" / "koordlet" / "services")
        if any(stage.bcc for stage in stages):
            copy_bcc(_kernel(image), Path(work) / "bcc")
        lines = "\n".join(_line(stage) for stage in stages)
        (Path(work) / "main").write_text(_MAIN.format(guest=guest, commit=commit(), stages=lines))
        (Path(work) / "main").chmod(0o755)
        make_ext4(Path(work), disk)


def copy_tree(
    image: Path, tree: Path, under: tuple[str, ...] = (".",), more: Iterable[str] = ()
) -> None:
    """Copy the working tree as it is now, ``under`` these paths of it, and ``more`` files; compiled
    for /srv/koordlet/tree of a guest."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *under],
        cwd=REPOSITORY, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    for name in (*filter(None, listed.split("\0")), *more):
        source = REPOSITORY / name
        if source.is_file():  # it may have been removed and not committed yet
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, tree / name)
    _compile(image, tree, "/srv/koordlet/tree")


def _kernel(image: Path) -> str:
    """Its version, such as 6.1.0-50-amd64."""
    found = re.search(r"linux-image-(\S+?),", (image / "release").read_text())
    assert found is not None
    return found[1]


def _line(stage: Stage) -> str:
    report = f"--junitxml=/tmp/results/{stage.name}.xml"
    words = shlex.join(stage.command or (report, *stage.pytest))
    return f"stage {stage.name} {stage.limit_s} {_PYTEST if stage.pytest else ''} {words}"


def results_disk(disk: Path) -> None:
    with disk.open("wb") as file:
        file.truncate(RESULTS_MIB << 20)


def read_results(disk: Path, directory: Path) -> None:
    """What the guest left; nothing when it has not come that far."""
    try:
        with tarfile.open(disk) as archive:
            archive.extractall(directory, filter="data")
    except tarfile.ReadError:
        return
